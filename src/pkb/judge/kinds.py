"""Which kind each call is to be, where a problem has several. The judge decides: what a candidate is asked for is no accident,
and it cannot tell what comes next."""

import itertools
import random
from collections.abc import Mapping


class KindPlan:
    def __init__(self, shares: Mapping[str, float], source: random.Random | None = None) -> None:
        self._source = source or random.SystemRandom()
        self.shares = dict(shares) or {"": 1.0}
        names = list(self.shares)
        self._source.shuffle(names)
        self._cycle = itertools.cycle(names)
        self._owed = dict.fromkeys(names, 0.0)

    def round_robin(self, count: int) -> list[str]:
        """For checks: as many calls as there are kinds have one of each."""
        return self._shuffled(list(itertools.islice(self._cycle, count)))

    def by_share(self, count: int) -> list[str]:
        """For times: all calls so far have each kind as often as its share says, to within one call."""
        chosen = []
        for _ in range(count):
            for kind, share in self.shares.items():
                self._owed[kind] += share
            most = max(self._owed, key=self._owed.__getitem__)
            self._owed[most] -= 1.0
            chosen.append(most)
        return self._shuffled(chosen)

    def _shuffled(self, kinds: list[str]) -> list[str]:
        self._source.shuffle(kinds)
        return kinds
