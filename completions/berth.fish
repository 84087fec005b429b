# SPDX-License-Identifier: Apache-2.0
# fish completion for berth. Profiles, claims, cards and VFs are asked of the daemon.

# The daemon that the command line names.
function __berth_ask
    set -l words (commandline -opc)
    set -l socket
    for i in (seq 2 (count $words))
        switch $words[$i]
            case --socket
                set -l next (math $i + 1)
                test $next -le (count $words); and set socket --socket $words[$next]
            case '--socket=*'
                set socket $words[$i]
        end
    end
    berth $socket complete $argv[1] 2>/dev/null
end

function __berth_profiles_equal
    __berth_ask profiles | string replace -r '\t' '=\t'
end

# The words behind the program that are no options and no options' values.
function __berth_plain
    set -l skip 0
    for word in (commandline -opc)[2..-1]
        if test $skip = 1
            set skip 0
            continue
        end
        switch $word
            case --socket --color -p --profile --gpu --numa-node --owner --console-log --console --channel \
                    --pid --policy --name --init-window --max-of --config --kubelet-dir
                set skip 1
            case '-*'
            case '*'
                echo $word
        end
    end
end

function __berth_no_command
    test (count (__berth_plain)) -eq 0
end

function __berth_in
    set -l plain (__berth_plain)
    test (count $plain) -ge 1; and contains -- $plain[1] $argv
end

# The command is $argv[1] and no word has followed it.
function __berth_first
    set -l plain (__berth_plain)
    test (count $plain) -eq 1; and test $plain[1] = $argv[1]
end

# The command is $argv[1], and its verb one of the others.
function __berth_verb
    set -l plain (__berth_plain)
    test (count $plain) -eq 2; and test $plain[1] = $argv[1]; and contains -- $plain[2] $argv[2..-1]
end

complete -c berth -f
complete -c berth -l json -d 'Print the daemon\'s answer as JSON'
complete -c berth -l socket -r -F -d 'Another daemon\'s socket'
complete -c berth -l color -x -a 'auto always never' -d 'When to use colours'
complete -c berth -s h -l help -d 'Explain, with examples'
complete -c berth -n __berth_no_command -s V -l version -d 'Print the version'

complete -c berth -n __berth_no_command -a resources -d 'What still fits'
complete -c berth -n __berth_no_command -a gpus -d 'List the cards'
complete -c berth -n __berth_no_command -a map -d 'Draw each card'
complete -c berth -n __berth_no_command -a claim -d 'Claim a vGPU'
complete -c berth -n __berth_no_command -a release -d 'Give a vGPU back'
complete -c berth -n __berth_no_command -a claims -d 'List the claims'
complete -c berth -n __berth_no_command -a run -d 'Claim, run a command, release'
complete -c berth -n __berth_no_command -a fit -d 'Would these fit together?'
complete -c berth -n __berth_no_command -a vf -d 'Show VFs, quarantine or clear one'
complete -c berth -n __berth_no_command -a gpu -d 'Cordon or recover a card'
complete -c berth -n __berth_no_command -a driver -d 'Let go of the driver, or resume'
complete -c berth -n __berth_no_command -a doctor -d 'Say what is wrong on this host'

complete -c berth -n '__berth_in map' -s w -l watch -d 'Draw anew whenever something changes'

complete -c berth -n '__berth_in claim run' -s p -l profile -x -a '(__berth_ask profiles)' -d 'Profile'
complete -c berth -n '__berth_in claim run' -l gpu -x -a '(__berth_ask gpus)' -d 'Only on this card'
complete -c berth -n '__berth_in claim run' -l numa-node -x -d 'Only on this NUMA node'
complete -c berth -n '__berth_in claim run' -l owner -x -d 'A note'
complete -c berth -n '__berth_in claim run' -l channel -x -d 'Where the guest agent answers'
complete -c berth -n '__berth_in claim' -l console-log -r -F -d 'The guest\'s console log'
complete -c berth -n '__berth_in claim' -l pid -x -a '(__fish_complete_pids)' -d 'Release when it has ended'
complete -c berth -n '__berth_in claim' -l policy -x -a 'foresight least_waste least_loaded' -d 'How to place'
complete -c berth -n '__berth_in claim release run' -l wait -d 'Wait'

complete -c berth -n '__berth_first release' -a '(__berth_ask claims)'

complete -c berth -n '__berth_in run' -l name -x -d 'Name of the claim'
complete -c berth -n '__berth_in run' -l console -r -F -d 'The guest\'s console log'
complete -c berth -n '__berth_in run' -l init-window -x -d 'How long init may take'

complete -c berth -n '__berth_in fit' -a '(__berth_profiles_equal)'
complete -c berth -n '__berth_in fit' -l max-of -x -a '(__berth_ask profiles)' -d 'How many more of this'

complete -c berth -n '__berth_first vf' -a 'list quarantine clear'
complete -c berth -n '__berth_verb vf quarantine clear' -a '(__berth_ask vfs)'
complete -c berth -n '__berth_first gpu' -a 'cordon uncordon recover'
complete -c berth -n '__berth_verb gpu cordon uncordon recover' -a '(__berth_ask gpus)'
complete -c berth -n '__berth_first driver' -a 'release resume'

complete -c berth -n '__berth_in doctor' -l config -r -F -d 'berthd\'s settings'
complete -c berth -n '__berth_in doctor' -l kubelet-dir -r -F -d 'Where device plugins have their sockets'
complete -c berth -n '__berth_in doctor' -l no-nvml -d 'Do not load NVIDIA\'s library'
complete -c berth -n '__berth_in doctor' -l list -d 'Print every finding there is'
