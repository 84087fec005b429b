# SPDX-License-Identifier: Apache-2.0
# bash completion for berth. Profiles, claims, cards and VFs are asked of the daemon.

_berth() {
	# The line is taken apart here: bash splits addresses such as 0000:41:00.0 at their colons.
	local line=${COMP_LINE:0:COMP_POINT} words cur prev command verb word i after=
	local common='--json --socket --color --help' socket=() choices= kind=
	read -ra words <<<"$line"
	[[ $line == *[[:space:]] ]] && words+=('')
	((${#words[@]} > 1)) || return
	cur=${words[-1]} prev=${words[-2]}

	for ((i = 1; i < ${#words[@]} - 1; i++)); do
		case ${words[i]} in
		--socket) socket=(--socket "${words[++i]}") ;;
		--socket=*) socket=("${words[i]}") ;;
		--color | -p | --profile | --gpu | --numa-node | --owner | --console-log | --console | \
			--channel | --pid | --policy | --name | --init-window | --max-of | --config | \
			--kubelet-dir) ((i++)) ;;
		--) after=1 && break ;;
		-*) ;;
		*) if [[ -z $command ]]; then command=${words[i]}; elif [[ -z $verb ]]; then verb=${words[i]}; fi ;;
		esac
	done
	if [[ -n $after ]]; then
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
		return
	fi

	# "--option=value" is completed like "--option value".
	if [[ $cur == --*=* ]]; then
		prev=${cur%%=*} cur=${cur#*=}
	fi
	case $prev in
	-p | --profile | --max-of) kind=profiles ;;
	--gpu) kind=gpus ;;
	--color) choices='auto always never' ;;
	--policy) choices='foresight least_waste least_loaded' ;;
	--socket | --console-log | --console | --config)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return ;;
	--kubelet-dir)
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return ;;
	--numa-node | --owner | --channel | --pid | --name | --init-window) return ;;
	*) _berth_words ;;
	esac

	if [[ -n $kind ]]; then
		choices=$(berth "${socket[@]}" complete "$kind" 2>/dev/null | cut -f1)
	fi
	if [[ $kind == profiles && $command == fit && $prev != --max-of ]]; then
		choices=$(sed 's/$/=/' <<<"$choices") && compopt -o nospace 2>/dev/null
	fi
	# Not by compgen -W: that runs what a word says. No name of berth's has other characters.
	COMPREPLY=()
	cur=${cur#[\"\']}
	while read -r word; do
		[[ -n $word && $word == "$cur"* && $word != *[!a-zA-Z0-9._:+=-]* ]] && COMPREPLY+=("$word")
	done <<<"${choices// /$'\n'}"
	# What bash takes for the word begins behind the last colon or equals sign.
	if [[ $COMP_WORDBREAKS == *:* && $cur == *:* ]]; then
		local head=${cur%"${cur##*:}"}
		COMPREPLY=("${COMPREPLY[@]#"$head"}")
	fi
}

# Words that stand for themselves: commands, verbs, options. Sets choices or kind of _berth.
_berth_words() {
	case $command in
	'')
		choices="resources gpus map claim release claims run fit vf gpu driver doctor --version $common" ;;
	resources | gpus | claims) choices=$common ;;
	map) choices="--watch $common" ;;
	claim)
		choices="--profile --gpu --numa-node --owner --console-log --channel --pid --policy --wait $common" ;;
	release) if [[ $cur == -* ]]; then choices="--wait $common"; elif [[ -z $verb ]]; then kind=claims; fi ;;
	run)
		choices="--profile --name --console --channel --gpu --numa-node --owner --init-window --wait -- $common" ;;
	fit) if [[ $cur == -* ]]; then choices="--max-of $common"; else kind=profiles; fi ;;
	vf)
		if [[ $cur == -* ]]; then choices=$common
		elif [[ -z $verb ]]; then choices='list quarantine clear'
		elif [[ $verb != list ]]; then kind=vfs; fi ;;
	gpu)
		if [[ $cur == -* ]]; then choices=$common
		elif [[ -z $verb ]]; then choices='cordon uncordon recover'
		else kind=gpus; fi ;;
	driver) if [[ $cur == -* ]]; then choices=$common; elif [[ -z $verb ]]; then choices='release resume'; fi ;;
	doctor) choices="--config --kubelet-dir --no-nvml --list $common" ;;
	esac
}

complete -F _berth berth
