#!/bin/bash
# Commands and their options: help for each, and an answer to each that does not exist.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"

prints 'usage: mtrain --config FILE'
prints 'usage: mtrain --config FILE' --help
prints 'usage: mtrain --config FILE' -h
prints 'usage: mtrain --config FILE' help
prints 'usage: mtrain help' help help
prints 'usage: mtrain help' help --help
prints 'usage: mtrain help' help -h
prints '[optimizer]' help settings
prints 'mtrain 0.' --version

for command in $("$mtrain" help | sed -n 's/^  \([a-z]\+\) .*/\1/p'); do
	prints "usage: mtrain" help "$command"
	prints "usage: mtrain" "$command" --help
	prints "usage: mtrain" "$command" -h
done

refused 2 "unknown command 'hlep'; did you mean 'help'?" hlep
refused 2 "unknown command 'qqqqqqqq'; \`mtrain help\` lists them" qqqqqqqq
refused 2 "unknown command 'hlep'; did you mean 'help'?" help hlep
refused 2 "help: no topic 'setings'; did you mean 'settings'?" help setings
refused 2 "help: unknown option '--hepl'; did you mean '--help'?" help --hepl
refused 2 "help: unknown option '--colour'; \`mtrain help help\` lists them" help --colour
refused 2 "help: 'b' is one argument too many" help a b
refused 2 "unknown command 'a?b'; \`mtrain help\` lists them" $'a\nb' # one line, whatever was typed

"$mtrain" help >/dev/full 2>err
[ $? = 1 ] || wrong 'help >/dev/full' "does not exit 1"
[ "$(cat err)" = "mtrain: standard output: cannot write" ] || wrong 'help >/dev/full' "says: $(cat err)"

exit $((failed > 0))
