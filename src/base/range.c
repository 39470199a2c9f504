#include "base/range.h"

#include <math.h>
#include <stdio.h>

#include "base/error.h"

struct interval {
	double least, most;
	char left, right;
};

static struct interval interval_of(const char *range)
{
	struct interval v;
	check(sscanf(range, "%c%lf, %lf%c", &v.left, &v.least, &v.most, &v.right) == 4);
	check((v.left == '[' || v.left == '(') && (v.right == ']' || v.right == ')'));
	return v;
}

bool range_holds(const char *range, double value)
{
	if (!range)
		return true;
	struct interval v = interval_of(range);
	return (v.left == '(' ? value > v.least : value >= v.least) &&
	       (v.right == ')' ? value < v.most : value <= v.most);
}

char *range_say(char *buf, size_t room, const char *range)
{
	buf[0] = '\0';
	if (!range)
		return buf;
	struct interval v = interval_of(range);
	if (isinf(v.most))
		snprintf(buf, room, "%s %.10g", v.left == '(' ? "above" : "at least", v.least);
	else
		snprintf(buf, room, "%s %.10g to %s%.10g", v.left == '(' ? "above" : "from", v.least,
			 v.right == ')' ? "below " : "", v.most);
	return buf;
}
