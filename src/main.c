/* mtrain: its commands, one line each, and the one place where an error is printed. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "commands/commands.h"

const struct command commands[] = {
	{"train", command_train, "train, from a config file; resumes by itself"},
	{"plan", command_plan, "whether a run fits, how long a step takes and why, without any device"},
	{"calibrate", command_calibrate, "measure this machine or job for `mtrain plan`"},
	{"tokenize", command_tokenize, "turn text into token shards"},
	{"import", command_import, "published weights become the checkpoint that a run starts from"},
	{"sample", command_sample, "go on writing a text with a trained model"},
	{"inspect", command_inspect, "what a shard, a checkpoint, a run or a safetensors file holds, and whether it is good"},
	{"help", command_help, "this, the settings, or how a command is called"},
	{NULL, NULL, NULL},
};

/* What all ranks read is wrong for all of them: rank 0 says so and brings the job down, while the others give it this
 * long. A rank that is alone with its error then speaks for itself. */
enum { OTHERS_WAIT_SECONDS = 2 };

/* Where a standard stream is closed, the next file opened would get its number, and the console would be written into that
 * file. Its place is taken by something that cannot be written (read, for the input) either. */
static bool hold_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			return false;
	return true;
}

int main(int argc, char **argv)
{
	struct error e = {0};
	if (!hold_streams())
		return CODE_MACHINE;
	int code = commands_run(argc, argv, &e);
	bool written = fflush(stdout) == 0 && !ferror(stdout); /* at the end, or long before */
	if (!written && e.code == CODE_DONE)
		error_set(&e, CODE_MACHINE, "standard output: cannot write");
	if (e.code == CODE_DONE)
		return code;
	if (log_size() > 1) {
		if (log_rank() != 0)
			sleep(OTHERS_WAIT_SECONDS);
		die(e.code, "%s", e.text);
	}
	log_cause(e.text);
	return e.code;
}
