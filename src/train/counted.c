#include "train/counted.h"

bool counted_open(struct counted *c, const struct config *config, const struct mesh *mesh, cost_workspace *workspace, void *context,
		  struct error *e)
{
	*c = (struct counted){.mesh = *mesh};
	c->layout = (struct count_layout){groups_place, &c->mesh};
	if (!dev_open(&c->dev, &backend_cost, &(struct dev_options){0}, e) ||
	    !count_open(&c->world, c->dev, mesh->rank, mesh_world(mesh), &c->layout, e))
		return false;
	cost_set_workspace(c->dev, workspace, context);
	if (run_open(&c->run, config, mesh, c->dev, c->world, e))
		return true;
	counted_close(c);
	return false;
}

void counted_close(struct counted *c)
{
	if (c->run.config)
		run_close(&c->run);
	comm_close(c->world);
	dev_close(c->dev);
	*c = (struct counted){0};
}

const struct record *counted_step(struct counted *c)
{
	struct scalars s = run_scalars(c->run.config);
	double totals[TOTALS];

	dev_write_scalars(c->dev, Q_COMPUTE, &s);
	/* A step may wait for what the one before has left behind. */
	for (int i = 0; i < 2; i++) {
		cost_forget(c->dev);
		run_step(&c->run, &(struct feed){0}, 0, false);
		dev_read_scalars(c->dev, Q_COMPUTE, &s);
		grad_totals_read(&c->run.grad, totals);
	}
	return cost_record(c->dev);
}
