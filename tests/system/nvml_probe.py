# SPDX-License-Identifier: Apache-2.0
"""What the simulator's NVML itself says, asked by ctypes in a process of its own."""
from test_fakenvml import Client

CODE = r"""
import json, sys
init()
for line in sys.stdin:
    answer = {}
    for address in json.loads(line):
        types = listing("nvmlDeviceGetSupportedVgpus", address=address)["ids"]
        answer[address] = {t: len(placements("Creatable", t, address)["ids"]) for t in types}
    out(answer)
"""


class Probe(Client):
    """free(card, ...) -> {card: {type id: number of creatable placements}}. Use as a context."""

    def __init__(self, sim):
        super().__init__(sim.root, CODE)

    def free(self, *cards):
        import json
        self.process.stdin.write(json.dumps(cards) + "\n")
        self.process.stdin.flush()
        return {card: {int(k): v for k, v in types.items()} for card, types in self.read().items()}
