"""The protocol of one kernel: how it was run, and what that showed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

from verifier.analyses.protocol.code import Code
from verifier.analyses.protocol.determinacy import WaitFault, wait_faults
from verifier.analyses.protocol.failures import CONFIRMED, failures
from verifier.analyses.protocol.machine import Machine
from verifier.analyses.protocol.search import Search, merit
from verifier.analyses.protocol.signals import Early, Excess, Mixed
from verifier.analyses.protocol.slicing import accesses_shared, writes_shared
from verifier.analyses.protocol.start import Dims, Start
from verifier.analyses.protocol.transactions import Bytes, Sum, balance_bytes, judge
from verifier.model.events import Event, Kind
from verifier.model.kernel import KernelModel

_CLUSTERS = ((1, 1, 1), (2, 1, 1), (4, 1, 1), (1, 2, 1), (2, 2, 1), (1, 1, 2), (1, 1, 4), (8, 1, 1), (1, 1, 8))
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Protocol:
    """Runs of a kernel, sorted by what they are evidence of.

    `runs` ended and exercise what verdicts rest on, the base run first. `corners` ended too, with less work (zero trips
    of some loop); `last` are those at the end of the grid. `partial` runs lack an input at some point, what came before
    is real. `hangs` got stuck although every input was known and no run that ended covers what they did. `reason` says
    why there is no base run.
    """

    def __init__(self, model: KernelModel, search: Search | None, tried: list[Machine], reason: str) -> None:
        self.model = model
        self.reason = reason
        self.steps = sum(run.time for run in tried)
        self.bytes: Bytes | None = search.bytes if search is not None else None
        best = search.best if search is not None else None
        ended = search.ended() if search is not None else []
        self.last = tuple(run for run in ended if run.script.last)
        first = [best] if best is not None and best.ended else ended[:1]
        base = [*first, *(run for run in ended if not run.script.degenerate and run not in first)]
        self.runs = tuple(r for r in base if r.worked >= base[0].worked or r.worked - base[0].worked)
        self.corners = tuple(run for run in ended if run not in self.runs)
        made = search.runs if search is not None else []
        self.recurrence = search.recurrence if search is not None else None
        self.drained = search is not None and search.drained
        self.needed = CONFIRMED if search is not None and search.second is not None else 1
        self.partial = tuple(run for run in made if run.problem is not None and run.time <= run.limit)
        self.failures = failures(tried, ended)
        self.hangs = tuple(self._hangs(tried))

    @property
    def base(self) -> Machine | None:
        return self.runs[0] if self.runs else None

    def _hangs(self, tried: list[Machine]) -> list[Machine]:
        """Runs that get stuck for no fault of their inputs."""
        if self.base is None:
            stuck = [run for run in tried if run.problem is None and run.stuck and not run.script.last]
            return sorted(stuck, key=merit, reverse=True)
        certain = self.failures.certain
        if certain is None:
            return []
        return [certain, *(r for r in self.failures.runs if not r.misused and r is not certain)]

    @property
    def hang(self) -> Machine | None:
        """A run that gets stuck, if enough runs do."""
        return self.hangs[0] if len(self.hangs) >= CONFIRMED else None

    def bytes_of(self, run: Machine) -> Bytes:
        """Bytes of copies, as far as a run tells."""
        return self.bytes if run is self.base and self.bytes is not None else balance_bytes(run)

    @property
    def guessed_cluster(self) -> bool:
        return self.model.shape.cluster is None and self.model.in_cluster

    @cached_property
    def wait_faults(self) -> tuple[tuple[Machine, WaitFault], ...]:
        """Waits that do not mean one phase in every schedule."""
        return tuple(
            {
                key: found
                for group, needed in ((self.last, CONFIRMED), (self.runs, self.needed))
                for key, found in agreed_by_key(group, _faults, needed).items()
            }.values()
        )

    @cached_property
    def odd_waits(self) -> dict[tuple[int, tuple[int, int]], Machine]:
        """(instruction, warp) of waits that may miss their phase under inputs that nothing confirms -> the run."""
        return {key: found[0] for key, found in agreed_by_key(self.runs, _faults, 1).items()}

    @cached_property
    def early(self) -> tuple[tuple[Machine, Early], ...]:
        """Signals that may land in another phase than the one they are meant for."""
        return tuple(
            found
            for group in self._groups()
            for found in agreed(group, lambda run: run.signals.early, self._enough(group))
        )

    @cached_property
    def excess(self) -> tuple[tuple[Machine, Excess], ...]:
        """Arrivals beyond a barrier's count."""
        return tuple(
            found
            for group in self._groups()
            for found in agreed(group, lambda run: run.signals.excess, self._enough(group))
        )

    @cached_property
    def mixed(self) -> tuple[tuple[Machine, Mixed], ...]:
        """Uses of a named barrier for which warps name different numbers of threads."""
        return tuple(agreed((*self.runs, *self.corners), lambda run: run.signals.mixed, 1))

    def _groups(self) -> list[tuple[Machine, ...]]:
        """Runs that must agree before something is reported: the base runs, those that got stuck, the grid's end."""
        stuck = self.hangs if self.hang is not None and not self.guessed_cluster else ()
        return [group for group in (self.runs, stuck, self.last) if group]

    def _enough(self, group: tuple[Machine, ...]) -> int:
        return CONFIRMED if group is self.last else self.needed

    def unreached(self, *kinds: Kind) -> list[Event]:
        """Events of these kinds that some warp can execute as far as the code tells, but no run came to."""
        run = self.base
        if run is None:
            return []
        seen: set[int] = set().union(*(r.visited for r in self._all_runs))
        blocks = run.code.cfg.block_of
        return [e for e in self.model.events if e.kind in kinds and blocks[e.instr] not in seen and self._runs(e)]

    def untouched(self) -> list[Event]:
        """Accesses of shared memory that some warp can execute as far as the code tells, but no run recorded."""
        if self.base is None:
            return []
        seen: set[int] = set().union(*(r.traffic.seen.union(r.traffic.unresolved) for r in self._all_runs))
        return [e for e in self.model.events if accesses_shared(e) and e.instr not in seen and self._runs(e)]

    @property
    def _all_runs(self) -> tuple[Machine, ...]:
        return (*self.runs, *self.corners, *self.partial, *self.hangs)

    def _runs(self, event: Event) -> bool:
        return any(s.runs(event) for s in self.model.streams)

    @property
    def doubt(self) -> str:
        """Why nothing can be proved from the runs; empty when they speak for every schedule."""
        if self.base is None:
            return f"the protocol could not be run to its end: {self.reason}"
        if self.hang is not None:
            return "the protocol gets stuck under some inputs"
        if self.failures.runs:
            return self.failures.doubt
        if self.early or self.excess or self.mixed:
            return "the barrier protocol is not deterministic, so one run does not speak for all schedules"
        odd = next((run for run in self.runs if run.signals.early or run.signals.excess), None)
        if odd is not None:
            return f"with {odd.script.text}, a signal may land in another phase than it means"
        return ""

    @property
    def may_hang(self) -> str:
        """Why the kernel may hang in another schedule although the runs ended; empty when it cannot.

        A wait that may miss its phase gives its waiter at least what it means, so order proved from that stands.
        """
        if self.wait_faults:
            return "a wait may miss the phase it means (MBR202)"
        for run in self.odd_waits.values():
            return f"with {run.script.text}, a wait may miss the phase it means"
        known = self.bytes
        if known is not None and any(judge(e, known) is not Sum.EVEN for b in known.balances for e in b.equations):
            return "expected and delivered bytes are not shown to be equal (MBR205)"
        return ""

    @property
    def claim(self) -> str:
        """The class of inputs that a proof holds for."""
        run = self.base
        if run is None:
            return ""
        cluster = "x".join(str(n) for n in run.start.cluster)
        guess = " (inferred)" if self.guessed_cluster else ""
        shape = f", cluster {cluster}{guess}" if run.start.ranks > 1 else ""
        words = f", {run.script.words}" if run.code.reads_memory else ""
        return (
            f"every schedule, {self._rounds}inputs invented: {run.script.text}{words}{shape}"
            f"{self.failures.exception}{self._exception}"
        )

    @property
    def _exception(self) -> str:
        """Corner cases whose signals go astray, as the end of a sentence: whether a host allows them is not known."""
        astray = (run for run in self.corners if run.signals.early or run.signals.excess)
        texts = dict.fromkeys(run.script.corner for run in astray)
        return f"; except {', '.join(texts)}: there a signal may land in another phase" if texts else ""

    @property
    def _rounds(self) -> str:
        if self.recurrence is None:
            most = self.base.rounds if self.base is not None else 0
            return f"up to {most} rounds; " if most else ""
        period = self.recurrence.period
        if self.drained or period == 1:
            return f"any number of rounds (the state comes back after {period}); "
        return f"any multiple of {period} more rounds (the state comes back); "


def agreed(runs: Sequence[Machine], shows: Callable[[Machine], Mapping[K, V]], needed: int) -> list[tuple[Machine, V]]:
    """What at least `needed` runs show, each with the first run that does."""
    return list(agreed_by_key(runs, shows, needed).values())


def agreed_by_key(
    runs: Sequence[Machine], shows: Callable[[Machine], Mapping[K, V]], needed: int
) -> dict[K, tuple[Machine, V]]:
    """What runs with at least `needed` scripts show, by key, each with the first run that does.

    One script alone may break a contract between a kernel and its host; two that agree are believed.
    """
    first: dict[K, tuple[Machine, V]] = {}
    shown: defaultdict[K, set[Hashable]] = defaultdict(set)
    for run in runs:
        for key, value in shows(run).items():
            first.setdefault(key, (run, value))
            shown[key].add(run.script.witness)
    return {key: found for key, found in first.items() if len(shown[key]) >= needed}


def _faults(run: Machine) -> dict[tuple[int, tuple[int, int]], WaitFault]:
    return {(fault.wait.instr, fault.wait.warp): fault for fault in wait_faults(run)}


# What the warps of a kernel share, beside shared memory that they write.
_SHARED = frozenset(
    {
        Kind.BARRIER_INIT,
        Kind.CTA_SYNC,
        Kind.CTA_ARRIVE,
        Kind.CLUSTER_ARRIVE,
        Kind.CLUSTER_WAIT,
        Kind.TMEM_ALLOC,
        Kind.TMEM_DEALLOC,
    }
)


def analyse(model: KernelModel) -> Protocol:
    """Run the protocol of a kernel; costs nothing when its warps share neither barriers nor memory."""
    barriers = any(e.kind is Kind.BARRIER_INIT for e in model.events)
    if not any(e.kind in _SHARED or writes_shared(e) for e in model.events):
        return Protocol(model, None, [], "nothing that warps share")
    if model.shape.block is None:
        return Protocol(model, None, [], "the block size is not known (--block)")
    hidden = _hidden(model)
    if hidden:
        return Protocol(model, None, [], hidden)
    code = Code(model)
    tried: list[Machine] = []
    best: Search | None = None
    for cluster in _clusters(model):
        search = Search(code, Start(model.function, model.shape.block, cluster), small=not barriers)
        search.explore()
        tried += search.runs
        if search.ended():
            best, tried = search, search.runs
            break
    return Protocol(model, best, tried, "" if best is not None else _why(tried))


def _hidden(model: KernelModel) -> str:
    """Why the kernel may do something to its barriers that is not seen; empty when it cannot."""
    unknown = next((e for e in model.events if e.kind is Kind.UNKNOWN), None)
    if unknown is not None:
        return f"{unknown.opcode} at PTX line {unknown.location.ptx_line} is not known"
    if model.unfollowed is not None:
        return f"the code that PTX line {model.unfollowed.location.ptx_line} goes to is not seen"
    return ""


def _clusters(model: KernelModel) -> tuple[Dims, ...]:
    if model.shape.cluster is not None:
        return (model.shape.cluster,)
    if not model.in_cluster:
        return ((1, 1, 1),)
    pairs = any(e.has("cta_group::2") for e in model.events)
    return tuple(c for c in _CLUSTERS if not pairs or (c[0] * c[1] * c[2]) % 2 == 0)


def _why(tried: list[Machine]) -> str:
    """The reason most runs stopped for."""
    reasons: dict[str, int] = {}
    for run in tried:
        reason = run.problem or "it gets stuck"
        reasons[reason] = reasons.get(reason, 0) + 1
    return max(reasons, key=lambda r: reasons[r]) if reasons else "nothing could be run"
