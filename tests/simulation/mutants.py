"""One-line defects, planted one at a time: what the simulation has to find if it is any good."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A defect.

    Attributes:
        file: Where.
        old: What stands there, once in the file.
        new: What stands there instead.
        expected: Invariants that may find it, most of all the first.
    """

    file: str
    old: str
    new: str
    expected: str


def _of(file: str, *defects: tuple[str, str, str]) -> list[Mutant]:
    return [Mutant(file, *defect) for defect in defects]


DRIVER = _of(
    "tuner/driver.py",
    ("            self._fold(event)\n        self._write()\n", "            self._fold(event)\n", "I15"),
    ("        if not outcome.is_routine:\n            self._write()\n", "", "I15"),
    ("return bool(why)", "return False", "I5"),
    ("self._earlier_s = elapsed_s", "self._earlier_s = 0.0", "I14 I20"),
    ("[*requests, *answers, *events]", "[*requests, *events]", "I9"),
    ("self._answers += [lost, WorkerExited", "self._answers += [WorkerExited", "I9"),
    ("        return min(limits, default=None)", "        return None", "I9"),
    ("if isinstance(command, DeleteCheckpoint):", "if isinstance(command, DeleteCheckpoint) and len(commands) < 3:", "I16"),
    ("            self._earlier_s, self._began_s = began_s, self._executor.clock()\n", "            pass\n", "I17 I12"),
)

CORE = _of(
    "tuner/core/experiment.py",
    ("trial is not None and trial.attempt == attempt and can_move", "trial is not None and can_move", "I8"),
    ("        self._waiting[trial.trial_id] = report\n", "", "I9"),
    ("if 0 <= self.settings.max_failures <= trial.num_failures:", "if 0 <= self.settings.max_failures < trial.num_failures:", "I12"),
    ("if event.failure and event.outcome is not ev.Outcome.LOST:", "if event.failure:", "I12"),
    ("        self._patience.forget(trial.trial_id)\n", "", "defect"),
    ("        self._take_result(trial)\n        self.roster.retire(trial)\n", "        self.roster.retire(trial)\n", "I7 I2 I3"),
    ("            self._leave(trial, ev.Outcome.LOST)\n        self._begin", "            pass\n        self._begin", "I13 I4"),
    ("self._intend(trial, self._stopping)\n                self._patience", "self._patience", "I9 I20"),
    ("            for trial in [*self.roster.ready, *self.roster.paused.values()]:", "            for trial in []:", "I9"),
    ("        self._out.delete(trial, self._keeper.release(trial))\n        self.desk.hear()", "        self.desk.hear()", "I16 I3"),
) + _of(
    "tuner/core/roster.py",
    ("        self.pool.release(trial.resources, trial.gpu_ids)\n", "", "I3 I9"),
    ("        trial.attempt += 1\n", "", "I8 I4"),
    ("        trial.num_failures += 1\n        trial.num_vain_attempts", "        trial.num_failures += 2\n        trial.num_vain_attempts", "I12"),
    ("        trial.intention = None\n", "        pass\n", "I17 I20 I9"),
    ('        self.live = {trial_id: self[trial_id] for trial_id in state["live"]}\n', "", "I13 I7"),
    ("        self.paused.pop(trial.trial_id, None)\n        self._move(trial, TrialMove.START)", "        self._move(trial, TrialMove.START)", "I3"),
) + _of(
    "tuner/core/lifecycle.py",
    ("(Verdict.CONTINUE, Outcome.LOST): TrialMove.REQUEUE", "(Verdict.CONTINUE, Outcome.LOST): TrialMove.FAIL", "I12"),
    ("(Verdict.STOP, Outcome.LOST): TrialMove.END", "(Verdict.STOP, Outcome.LOST): TrialMove.REQUEUE", "I20"),
    ("(Verdict.STOP, Outcome.KILLED): TrialMove.END", "(Verdict.STOP, Outcome.KILLED): TrialMove.FAIL", "I12 I20"),
) + _of(
    "tuner/core/trial.py",
    ("is_stop + (is_stop and intention.ending is not Ending.INTERRUPTED)", "int(is_stop)", "I17"),
)  # fmt: skip

KEEPER = _of(
    "tuner/core/keeper.py",
    ("trial.next_checkpoint = checkpoint.index + 1", "trial.next_checkpoint = checkpoint.index", "I5"),
    ("        trial.leases.clear()\n", "", "I16"),
    ("checkpoint.index != index]", "checkpoint.index > index]", "I11 I5"),
    ("if dropped:", "if dropped and trial.leased:", "I11 I16"),
    ("if intention.verdict is Verdict.PAUSE or intention.ending is Ending.INTERRUPTED:\n                return True", "if False:\n                return True", "I12"),
) + _of(
    "tuner/core/retention.py",
    (" | {checkpoints[-1].index} | set(leased)", " | set(leased)", "I5 I11 I17"),
    ("len(checkpoints) <= policy.num_to_keep:", "len(checkpoints) <= policy.num_to_keep + 2:", "I16"),
    ("[-policy.num_to_keep :]", "[: policy.num_to_keep]", "I16 I17"),
)  # fmt: skip

DESK = _of(
    "tuner/core/search_desk.py",
    ("        self._num_asked -= self.num_outstanding\n", "", "I20"),
    ("        self.num_outstanding -= 1\n        self._num_asked -= 1\n", "        self.num_outstanding -= 1\n", "I20"),
    ("        self._is_suspended = False\n        self._num_asked -=", "        self._num_asked -=", "I20 I9"),
) + _of(
    "tuner/core/patience.py",
    ("            self._deadlines.set(trial_id, now_s + self._report_timeout_s)", "            pass", "I9"),
    ("self._deadlines.set(trial_id, now_s + self._stop_grace_s if self._all_gone_s is None else self._all_gone_s)", "pass", "I9"),
) + _of(
    "tuner/core/counsel.py",
    ("and now_s >= self.time_budget_s:", "and now_s > 2 * self.time_budget_s:", "I20 I9"),
    ("        self._num_questions += 1\n", "", "I7"),
)  # fmt: skip

JOURNAL = _of(
    "tuner/storage/journal.py",
    ("self.epoch = tail.epoch + 1", "self.epoch = max(tail.epoch, 1)", "I14"),
    ("                self._sync_or_replace()\n            case _:", "                pass\n            case _:", "I1"),
    ("                self._is_condemned = True\n                raise", "                raise", "I1 I14"),
    ("self._new_segment(self._synced, b", "self._new_segment(self._written, b", "I14 I1"),
    ('b"".join(batch.lines for batch in self._unsynced)', 'b""', "I14 I1"),
    ("        self._sync_or_replace()\n        segment = ", "        segment = ", "I1 I14"),
    ("            target = self._written\n            try:", "            target = self._staged_tail\n            try:", "I1 I15"),
    ("        segment = self._new_segment(self._written)\n", "        segment = self._new_segment(self._staged_tail)\n", "I14"),
    ("        self._unsynced.append(_Batch(self._staged_tail, lines))", "        pass", "I1 defect"),
    ("            if self._staged:\n                self._write_staged()\n", "            pass\n", "I15"),
) + _of(
    "tuner/storage/segments.py",
    ("        if taken != len(data):", "        if not taken:", "I1 I14 I15"),
    ("        self._disk.truncate(self._descriptor, self.size_bytes)\n", "", "I14"),
    ("            if sync:\n                self.sync()\n            disk.rename", "            disk.rename", "I14 I1"),
    ("                disk.sync_directory(directory)", "                pass", "I1 I14"),
) + _of(
    "tuner/storage/recovery.py",
    ("            _write_anew(path, data[: walk.torn_at], disk)\n", "", "I14"),
    ("        self.tail = Tail(sequence, zlib.crc32(body), epoch)", "        self.tail = Tail(sequence, 0, epoch)", "I14"),
) + _of(
    "tuner/storage/atomic.py",
    ("        if sync:\n            disk.sync(descriptor)\n", "", "I14 I1"),
) + _of(
    "tuner/storage/cleaner.py",
    ("and self._held[0][0] <= safe:", ":", "I15"),
    ("self._journal.synced_sequence if is_synced else self", "self._journal.written_sequence if is_synced else self", "I15"),
)  # fmt: skip

CODEC = _of(
    "tuner/storage/records.py",
    ('"failure": failure_fields(failure) if failure else None', '"failure": None', "I7 defect"),
    ('fields.get("is_complete", False)', "False", "I7"),
    ('        body["d"] = ', '        body["e"] = ', "I14 defect"),
) + _of(
    "tuner/journaling.py",
    ("            body[records.ROUTINE_END] = self._routine_end_s\n            self._routine_end_s = None\n", "            self._routine_end_s = None\n", "I7"),
    ("            self._routine_end_s = None\n        self._encoding_s", "        self._encoding_s", "I7"),
    ("        self._cleaner.release()\n", "", "I16"),
)  # fmt: skip

REPLAY = _of(
    "tuner/replay.py",
    ("    return Replayed(elapsed_s, recent)", "    return Replayed(0.0, recent)", "I14 I20"),
    ("            experiment.handle(TurnEnded(), routine_end_s, ())\n", "            pass\n", "I7 I6"),
    ("            event = proposer.relive(event)\n", "            pass\n", "I17 I20"),
    ("outcome = experiment.handle(event, elapsed_s, advice)", "outcome = experiment.handle(event, 0.0, advice)", "I7"),
)

SNAPSHOTS = _of(
    "tuner/snapshots.py",
    ('        counsel.scheduler.load_state_dict(state["scheduler"])\n', "", "I6 I7"),
    ('        self.proposer.load_state_dict(state["proposer"])\n', "", "I17 I20 I9"),
) + _of(
    "tuner/core/memory.py",
    ('trial.attempt = fields["attempt"]', "trial.attempt = 0", "I7 I13"),
    ('trial.next_checkpoint = fields["next_checkpoint"]', "trial.next_checkpoint = 0", "I5 I7"),
)  # fmt: skip

SCHEDULERS = _of(
    "schedulers/rungs.py",
    ("        if index <= before:\n            return None\n", "", "I6"),
    ("        self._highest[trial_id] = index\n", "", "I6"),
    ("            insort(self.values, value)", "            self.values.append(value)", "I6 I17"),
    ("        self._rungs[index].add(value)\n", "        self._rungs[index].add(value / 2)\n", "I6"),
)

SEARCHERS = _of(
    "searchers/limiter.py",
    ("        if not self.batch:\n            self._tell(trial_id)\n", "        if not self.batch:\n            pass\n", "I9"),
)

MUTANTS = [*DRIVER, *CORE, *KEEPER, *DESK, *JOURNAL, *CODEC, *REPLAY, *SNAPSHOTS, *SCHEDULERS, *SEARCHERS]

ESCAPING = _of(
    "tuner/core/experiment.py",
    # A trial whose first save failed is resumed within the same turn, from the beginning: seen only where it stays paused.
    ("case TrialMove.PAUSE if intention and trial.has_checkpoint:", "case TrialMove.PAUSE if intention:", "I11 I3"),
)
"""Defects that the simulation does not find within a minute, with the reason."""
