"""Mutants: defects of one line that the simulation has to find."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A defect.

    Attributes:
        file: Where.
        old: What stands there, once in the file; white space and trailing commas do not count.
        new: What stands there instead.
        expected: Invariants that may find it, most of all the first.
    """

    file: str
    old: str
    new: str
    expected: str

    def places(self, source: str) -> list[tuple[int, int]]:
        """Return the stretches of the file that read as `old` does."""
        stripped = self.old.strip()
        words = re.findall(r"\w+|[^\w\s]", stripped)
        pattern = r"\s*".join(
            (r"(?:,\s*)?" if word in ")]}" else "") + re.escape(word) for word in words
        )
        return [
            found.span()
            for found in re.finditer(r"(?<!\w)" * stripped[0].isalnum() + pattern, source)
        ]

    def planted_in(self, source: str) -> str:
        """Return the file's text with the defect in it."""
        [(start, end)] = self.places(source)
        return source[:start] + self.new.strip() + source[end:]


def _of(file: str, *defects: tuple[str, str, str]) -> list[Mutant]:
    return [Mutant(file, *defect) for defect in defects]


DRIVER = _of(
    "tuner/driver/driver.py",
    (
        "            self._write()\n            self._notify()\n",
        "            self._notify()\n",
        "I20 I6",
    ),
    ("(self._has_effects() and not self._is_written)", "False", "I15"),
    ("self._is_written &= outcome.is_noop", "pass", "I15"),
    ("return bool(why)", "return False", "I5"),
    ("self._earlier_s = elapsed_s", "self._earlier_s = 0.0", "I14 I20"),
    (
        "[*requests, *answers, *self._suggestions.take(), *events]",
        "[*requests, *self._suggestions.take(), *events]",
        "I9",
    ),
    ("self._answers += [lost, WorkerExited", "self._answers += [WorkerExited", "I9"),
    ("        return min(limits, default=None)", "        return None", "I9"),
    (
        "if isinstance(command, DeleteCheckpoint):",
        "if isinstance(command, DeleteCheckpoint) and len(commands) < 3:",
        "I16",
    ),
    (
        "            self._earlier_s, self._began_s = (self._earlier_s + (began_s - self._began_s), self._clock())\n",
        "            pass\n",
        "I17 I12",
    ),
)

CORE = _of(
    "tuner/core/experiment.py",
    ("trial is not None and trial.attempt == attempt and can_move", "trial is not None and can_move", "I8"),
    ("        self.unanswered.add(report)\n", "", "I9"),
    ("        trial.last_result = report.result\n", "", "I2 I7 I3"),
    ('            self.note_loss(trial, why or "its worker vanished")\n', "            trial.failures += [event.failure] if event.failure else []\n", "I12"),
    ("            self.end_attempt(trial, ev.Outcome.LOST)\n        self._begin_session", "            pass\n        self._begin_session", "I13 I4"),
    ("self._retries.has_retries_left(trial))", "not trial.num_failures > self.settings.max_failures >= 0)", "I12"),
    ("        self.timeouts.forget(trial.trial_id)\n", "", "defect"),
    ("        self.unanswered.drop(trial)\n        self.trial_table.release_worker(trial)\n", "        self.trial_table.release_worker(trial)\n", "defect"),
    ("self._intend(trial, self._stopping)\n                self.timeouts", "self.timeouts", "I9 I20"),
    ("        for trial in [*waiting, *table.backlog.values()]:", "        for trial in []:", "I9"),
    ("        for trial in [*waiting, *table.backlog.values()]:", "        for trial in waiting:", "I9"),
    ("        self.out.delete(trial, self.checkpoints.release(trial))\n        self.suggestion_budget.on_progress()", "        self.suggestion_budget.on_progress()", "I16 I3"),
) + _of(
    "tuner/core/trial_table.py",
    ("        self.nodes.release(trial.request, _granted(trial))\n", "", "I3 I9"),
    ("        trial.attempt += 1\n", "", "I8 I4"),
    ("        trial.num_failures += is_counted\n        trial.num_vain_attempts", "        trial.num_failures += 2\n        trial.num_vain_attempts", "I12"),
    ("        trial.intention = None\n", "        pass\n", "I17 I20 I9"),
    ('        self.live = {trial_id: self[trial_id] for trial_id in state["live"]}\n', "", "I13 I7"),
    ("        self.paused.pop(trial.trial_id, None)\n        self._move(trial, TrialMove.START)", "        self._move(trial, TrialMove.START)", "I3"),
    ("        if self.is_admitted(trial):\n", "        if True:\n", "defect I3"),
    ('for trial_id in state["admitted"]}', "for trial_id in self.by_id}", "I3 I7"),
) + _of(
    "tuner/core/lifecycle.py",
    ("(ReportReply.CONTINUE, Outcome.LOST): TrialMove.REQUEUE", "(ReportReply.CONTINUE, Outcome.LOST): TrialMove.FAIL", "I12"),
    ("(ReportReply.STOP, Outcome.LOST): TrialMove.END", "(ReportReply.STOP, Outcome.LOST): TrialMove.REQUEUE", "I20"),
    ("(ReportReply.STOP, Outcome.KILLED): TrialMove.END", "(ReportReply.STOP, Outcome.KILLED): TrialMove.FAIL", "I12 I20"),
    ("(ReportReply.STOP, Outcome.UNSAVED): TrialMove.FAIL", "(ReportReply.STOP, Outcome.UNSAVED): TrialMove.END", "I12"),
) + _of(
    "tuner/core/trial.py",
    ("return 0 if intention.ending is TerminationReason.INTERRUPTED else 4", "return 0", "I17 I20"),
)  # fmt: skip

CHECKPOINTS = _of(
    "tuner/core/checkpoints.py",
    ("max(trial.next_checkpoint, index + 1)", "max(trial.next_checkpoint, index)", "I5"),
    ('trial.leases.pop("", None) is not None', 'trial.leases.get("", None) is not None', "I16"),
    ("kept.index != index]", "kept.index > index]", "I11 I5"),
    ("if dropped:", "if dropped and trial.leased:", "I11 I16"),
    ("        if intention.reply is ReportReply.PAUSE or is_interrupted:\n            return True\n", "", "I12"),
) + _of(
    "tuner/core/checkpoints.py",
    (" | set(real[-1:]) | set(leased)", " | set(leased)", "I5 I11 I17"),
    ("len(checkpoints) <= policy.num_to_keep:", "len(checkpoints) <= policy.num_to_keep + 2:", "I16"),
    ("[-policy.num_to_keep :]", "[: policy.num_to_keep]", "I16 I17"),
)  # fmt: skip

EXPLOITS = _of(
    "tuner/core/exploits.py",
    ("        donor.leases[_pending(trial)] = checkpoint.index", "        pass", "defect"),
    ("        donor.leases[trial.trial_id] = checkpoint.index\n        trial.experiment_tag", "        trial.experiment_tag", "I5 I16"),
    ("            self.released[donor.trial_id] = donor", "            pass", "I16"),
    ("            self._end_lease(self._trial_table[graft.donor_id], trial.trial_id)", "            pass", "I16"),
    ("        self._end_lease(self._trial_table[donor_id], _pending(trial))", "        pass", "I16"),
    ("        trial.config, trial.exploit = exploit.config, None", "        trial.exploit = None", "I6"),
    ("            checkpoint=checkpoint,\n            from_iteration", "            checkpoint=donor.checkpoints[0],\n            from_iteration", "I5 I16"),
    ("            first_checkpoint=trial.next_checkpoint,", "            first_checkpoint=0,", "I5"),
    ("            num_rows=trial.num_rows,", "            num_rows=trial.iteration,", "I2"),
    ("        trial.exploit = dataclasses.replace(decision, checkpoint=checkpoint.index)", "        trial.exploit = dataclasses.replace(decision, checkpoint=0)", "I16 defect"),
    ("        return self._drop_exploits(self._take_waiting(donor))", "        return []", "I9"),
    ("        for trial in self._take_waiting(donor):", "        for trial in ():", "I9"),
    ("            if trial.exploit and WaitsFor.DONOR in trial.waits_for:\n                self._waiting_for", "            if False:\n                self._waiting_for", "I9"),
    ("            trial.grafts[-1] = dataclasses.replace(graft, is_over=True)\n\n    def _wait", "            pass\n\n    def _wait", "I5 I11"),
    ("        self.cancel(trial)\n        if checkpoint", "        if checkpoint", "I16"),
) + _of(
    "tuner/core/experiment.py",
    ("        self.exploits.release_origin(trial)\n        self.exploits.supply(trial)\n", "        self.exploits.supply(trial)\n", "I5 I16"),
    ("        self.exploits.supply(trial)\n        self.needs_scheduling", "        self.needs_scheduling", "I9"),
    ("        self.exploits.cancel(trial)\n        trial.resize", "        trial.resize", "I16 I9"),
    ("        self._drop_pending_changes(trial)\n        self._continue_unchanged(self.exploits.dismiss_waiting(trial))", "        self._drop_pending_changes(trial)", "I9"),
    ("case TrialMove.PAUSE if intention and (trial.source or trial.exploit):", "case TrialMove.PAUSE if intention:", "I11 I3"),
    ("elif not (is_interrupted and trial.status is Status.PAUSED):", "else:", "I20"),
    ("            self._notify(cmd.CheckpointMissed(trial, event.failure))\n            self._continue_unchanged(self.exploits.dismiss_waiting(trial))", "            self._notify(cmd.CheckpointMissed(trial, event.failure))", "I9"),
    ("            self._offer_slots_to_paused()\n", "", "I9"),
    ("        without_donor = [*self.exploits.on_checkpoint_lost(owner, event.index)]", "        without_donor = []", "I5 I16"),
    ("            self.out.delete(donor, self.checkpoints.drop_superseded(donor))", "            self.checkpoints.drop_superseded(donor)", "I16"),
) + _of(
    "tuner/core/trial_starter.py",
    ("            trial.owes_save = self._exploits.has_waiting(trial)\n", "", "I9"),
) + _of(
    "tuner/core/trial.py",
    ("        return self.grafts[-1] if self.grafts and not self.grafts[-1].is_over else None", "        return self.grafts[-1] if self.grafts else None", "I5 I16"),
    ("            self.num_rows = self.resumed_row + 1\n", "            self.num_rows += 1\n", "I2"),
    ("            self.num_rows += 1\n", "            self.num_rows = iteration\n", "I2"),
    ("            return graft.num_rows if graft else 0\n", "            return 0\n", "I2"),
) + _of(
    "tuner/core/checkpoints.py",
) + _of(
    "tuner/core/lifecycle.py",
    ("(ReportReply.EXPLOIT, Outcome.FAILED): TrialMove.PAUSE", "(ReportReply.EXPLOIT, Outcome.FAILED): TrialMove.FAIL", "I9 I12"),
    ("(ReportReply.PAUSE, Outcome.LOST): TrialMove.REQUEUE", "(ReportReply.PAUSE, Outcome.LOST): TrialMove.PAUSE", "I12"),
) + _of(
    "tuner/core/checkpoints.py",
    (" | set(leased)", "", "defect I5 I16"),
) + _of(
    "tuner/core/trial.py",
    ("    leases: dict[str, int] =", "    leases: Annotated[dict[str, int], NEVER] =", "I7 I16 I5"),
    ("    exploit: Exploit | None =", "    exploit: Annotated[Exploit | None, NEVER] =", "I7 I9"),
) + _of(
    "tuner/core/paused_trials.py",
    ("if WaitsFor.DONOR in trial.waits_for:\n                    continue", "if WaitsFor.DONOR in trial.waits_for:\n                    pass", "I17 I9"),
    ("            trial.waits_for &= ~WaitsFor.DECISION\n            if trial.exploit is None:", "            if trial.exploit is None:", "defect I17 I9"),
) + _of(
    "tuner/core/trial.py",
    ("return WaitsFor.NOTHING if is_to_resume else WaitsFor.DECISION", "return WaitsFor.NOTHING", "I17 I20 I9"),
) + _of(
    "schedulers/population/population_scheduler.py",
    ("            return self._pause(member) if point.time >= member.paused_at else ()", "            return ()", "I17"),
)  # fmt: skip

BUDGETS = _of(
    "tuner/core/trial_starter.py",
    ("        self._num_asked -= self.num_outstanding\n", "", "I20"),
    ("        self.num_outstanding -= 1\n        self._num_asked -= 1\n", "        self.num_outstanding -= 1\n", "I20"),
    ("        self._is_suspended = False\n        self._num_asked -=", "        self._num_asked -=", "I20 I9"),
) + _of(
    "tuner/core/timeouts.py",
    ("            self._deadlines.set(trial_id, now_s + self._report_timeout_s)", "            pass", "I9"),
    ("self._deadlines.set(trial_id, now_s + self._stop_grace_s if due_s is None else due_s)", "pass", "I9"),
) + _of(
    "tuner/core/policies.py",
    ("and now_s >= self.time_budget_s:", "and now_s > 2 * self.time_budget_s:", "I20 I9"),
    ("        self._num_questions += 1\n", "", "I7"),
)  # fmt: skip

VALIDATIONS = _of(
    "tuner/validation/queue.py",
    ("            or validation.num_try != event.num_try\n", "", "I21 I2 I3 defect"),
    ("        self._running.discard((trial.trial_id, index))\n", "", "I3 defect"),
    ("            self._trial_table.take_back(holder)\n", "            pass\n", "I3 I9 defect"),
    ("            self._unfinished[trial_id, index] = trial\n            validation =", "            validation =", "I3 I9 I21 defect"),
) + _of(
    "tuner/core/trial.py",
    ("set(self.leases.values()) | self.open_validations.keys()", "set(self.leases.values())", "I21 I3 I16"),
) + _of(
    "tuner/validation/late_results.py",
    ("            results[checkpoint.index] = result\n", "            pass\n", "I21 I16"),
) + _of(
    "tuner/core/experiment.py",
    ("        if not all(part.is_over for part in self.parts):\n            return False\n", "", "I21 I9 I20"),
) + _of(
    "tuner/validation/records.py",
    ("    is_open: Annotated[bool, OPTIONAL] =", "    is_open: Annotated[bool, NEVER] =", "I7 I21 I3 defect"),
)  # fmt: skip

JOURNAL = _of(
    "tuner/journal/writer.py",
    ("self.epoch = tail.epoch + 1", "self.epoch = max(tail.epoch, 1)", "I14"),
    ("SyncPolicy.STRICT:\n                self._sync_or_replace()\n", "SyncPolicy.STRICT:\n                pass\n", "I1"),
    ("                self._sync_failed = True\n                raise", "                raise", "I1 I14"),
    ("self._new_segment(self._synced, b", "self._new_segment(self._written, b", "I14 I1"),
    ('b"".join(lines for _, lines in self._unsynced)', 'b""', "I14 I1"),
    ("        self._sync_or_replace()\n        segment = ", "        segment = ", "I1 I14"),
    ("            target = self._written\n            try:", "            target = (self._sequence, self._crc)\n            try:", "I1 I15"),
    ("        segment = self._new_segment(self._written)\n", "        segment = self._new_segment((self._sequence, self._crc))\n", "I14"),
    ("        self._unsynced.append((last, lines))", "        pass", "I1 defect"),
    ("            if self._staged:\n                self._write_staged()\n", "            pass\n", "I15"),
) + _of(
    "tuner/journal/segments.py",
    ("            while taken < len(data):", "            if not taken:", "I1 I14 I15"),
    ("        self._disk.truncate(self._descriptor, self.size_bytes)\n", "", "I14"),
    ("            if sync:\n                self.sync()\n            disk.rename", "            disk.rename", "I14 I1"),
    ("                disk.sync_directory(directory)", "                pass", "I1 I14"),
) + _of(
    "tuner/journal/completeness.py",
    ("    if tail.epoch < mark.epoch:\n", "    if tail.epoch + 1 < mark.epoch:\n", "I14"),
    ("int(end.last[0].stem) < mark.segment", "not mark.segment", "I14"),
) + _of(
    "tuner/journal/mark.py",
    ('return self.durability == "process" and not is_same', "return not is_same", "I14"),
) + _of(
    "tuner/journal/reader.py",
    ("        _write_anew(*end.last, disk)\n", "        pass\n", "I14"),
    ("        self.tail = JournalPosition(sequence, crc, epoch)", "        self.tail = JournalPosition(sequence, 0, epoch)", "I14"),
) + _of(
    "tuner/storage/disk.py",
    ("        if sync:\n            disk.sync(descriptor)\n", "", "I14 I1"),
) + _of(
    "tuner/driver/checkpoint_store.py",
    ("and self._held[0][0] <= safe:", ":", "I15"),
    ("self._journal.synced_sequence if is_synced else self", "self._journal.written_sequence if is_synced else self", "I15"),
)  # fmt: skip

RECORDS = _of(
    "tuner/core/events.py",
    ("    outcome: Outcome\n    failure: Failure | None =", "    outcome: Outcome\n    failure: Annotated[Failure | None, NEVER] =", "I7 defect"),
) + _of(
    "tuner/core/recorded_decisions.py",
    ("is_complete=OPTIONAL", "is_complete=type(OPTIONAL).NEVER", "I7"),
) + _of(
    "tuner/journal/records.py",
    ('        body["d"] = ', '        body["e"] = ', "I14 defect"),
) + _of(
    "tuner/driver/journal_log.py",
    ("            body[records.ROUTINE_END] = routine_end_s\n", "            pass\n", "I7"),
    ("        routine_end_s, self._routine_end_s = self._routine_end_s, None\n", "        routine_end_s = self._routine_end_s\n", "I7"),
)  # fmt: skip

RESTORE = _of(
    "tuner/restore/experiment.py",
    (
        "    return Restored(state, elapsed_s, recent)",
        "    return Restored(state, 0.0, recent)",
        "I14 I20",
    ),
    ("            event = past_search.replay(event)\n", "            pass\n", "I17 I20"),
    (
        "outcome = experiment.handle(event, elapsed_s, recorded)",
        "outcome = experiment.handle(event, 0.0, recorded)",
        "I7",
    ),
) + _of(
    "tuner/journal/reader.py",
    (
        "                yield RecordedEvent(TurnEnded(), records.stamp_of(body, records.ROUTINE_END))\n",
        "                pass\n",
        "I7 I6",
    ),
)

SNAPSHOTS = _of(
    "tuner/restore/snapshot_state.py",
    ('            policies.scheduler.load_state_dict(state["scheduler"])\n', "", "I6 I7"),
    ('            self.search.load_state_dict(state["proposer"])\n', "", "I17 I20 I9"),
) + _of(
    "tuner/core/trial.py",
    ("    attempt: int = 0\n", "    attempt: Annotated[int, NEVER] = 0\n", "I7 I13"),
    ("    next_checkpoint: int = 0\n", "    next_checkpoint: Annotated[int, NEVER] = 0\n", "I5 I7"),
)  # fmt: skip

SCHEDULERS = _of(
    "schedulers/halving/rungs.py",
    ("        if index <= before:\n            return None\n", "", "I6 defect"),
    ("        self._highest[trial_id] = index\n", "", "I6 defect"),
    ("            insort(self.values, value)", "            self.values.append(value)", "I6 I17"),
    (
        "        rung.add(value, violation)\n",
        "        rung.add(value / 2, violation)\n",
        "I6",
    ),
)

SEARCHERS = _of(
    "searchers/wrappers/concurrency_limiter.py",
    (
        "        if not self.batch:\n            self._report(trial_id)\n",
        "        if not self.batch:\n            pass\n",
        "I9",
    ),
)

LOGGERS = _of(
    "tuner/callbacks/files/csv_logger.py",
    ("            self._cut_back(num_kept)\n", "            pass\n", "I19"),
) + _of(
    "tuner/callbacks/files/json_logger.py",
    ("islice(read_rows(self._path), num_rows)", "islice(read_rows(self._path), num_rows + 1)", "I19"),
) + _of(
    "tuner/callbacks/files/tensorboard_logger.py",
    ("[self._encoder.restart(at, 0), *(record for _, record in kept)]", "[self._encoder.restart(at, 0)]", "I19"),
    ("            file.truncate()  # TensorBoard", "            pass  # TensorBoard", "I19"),
    ("self._encoder.restart(at, first if kept else 0)", "self._encoder.restart(at, first - 1 if kept else 0)", "I19"),
) + _of(
    "tuner/callbacks/files/event_file.py",
    ("    while found and not found[-1].endswith(_checksum(_message(found[-1]))):\n        found.pop()\n", "", "I19"),
) + _of(
    "tuner/callbacks/files/trial_file.py",
    ("                self.num_rows = (self.num_rows or 0) + len(segment.rows)\n", "                self.num_rows = len(segment.rows)\n", "I19"),
    ("segment.rows[0].number - 1 - self", "segment.rows[0].number - self", "I19"),
    ("            while branches and number > branches[0].num_rows:\n                yield self._at_graft(trial, branches)\n", "", "I19"),
) + _of(
    "tuner/callbacks/files/append.py",
    ("            os.ftruncate(descriptor, start)\n", "            pass\n", "I19"),
) + _of(
    "tuner/callbacks/files/background_writer.py",
    (" | {sink: [] for sink in self._behind if sink not in taken}", "", "I19"),
    ("        batches, self._held = self._held, {}\n", "        batches, self._held = {}, {}\n", "I19"),
    ("            batches[addressee].append(entry)\n", "            batches[addressee] = [*batches[addressee][:1], entry]\n", "I19"),
)  + _of(
    "tuner/callbacks/files/trial_file.py",
    ("        self.audit(settled, results_of)\n", "", "I19"),
    ("            if trial in doubtful or not self.is_complete(trial):", "            if False:", "I19"),
)  # fmt: skip

TRAINING = _of(
    "tuner/core/resources.py",
    ("            free[device] -= units\n", "", "I4 I3"),
    ("sign * num_shares * _units(amount)", "sign * _units(amount)", "I3 I4"),
    ("wanted = units // _UNIT * num_shares", "wanted = units // _UNIT", "I4"),
    ("self.num_fitting(group.resources_per_worker, group.most)", "self.num_fitting(group.resources_per_worker, group.most + 1)", "I4"),
    ("if num_workers >= group.fewest else None", "if num_workers else None", "I4"),
) + _of(
    "tuner/core/trial_table.py",
    ("            trial.group, trial.resources = sized, sized.total\n", "            trial.group = sized\n", "I3"),
    ("            self.nodes.hold(trial.request, _granted(trial))\n", "            pass\n", "I3 I4"),
    ("        self.nodes.release(*self.lent.pop(holder))\n", "        self.lent.pop(holder)\n", "I3 I9"),
) + _of(
    "tuner/core/trial.py",
    ("return next((kept for kept in reversed(self.checkpoints) if not kept.is_placeholder), None)", "return self.checkpoints[-1] if self.checkpoints else None", "I5 I11"),
) + _of(
    "tuner/core/worker_records.py",
    ("    is_decided: Annotated[bool, OPTIONAL] =", "    is_decided: Annotated[bool, NEVER] =", "I7"),
) + _of(
    "tuner/core/checkpoints.py",
    ("        bisect.insort(trial.checkpoints, scored, key=lambda kept: kept.index)\n", "        trial.checkpoints.append(scored)\n", "I5 I3 I16"),
    ("score=upload.score, num_rows=upload.num_rows", "score=upload.score, num_rows=trial.num_rows", "I2"),
) + _of(
    "tuner/core/experiment.py",
    ("        elif event.upload is not None:\n            self.checkpoints.announce(trial, event.upload, flat)\n", "", "I5"),
    ("        if trial is None or trial.attempt != event.attempt or index not in trial.uploads:\n", "        if trial is None or trial.attempt != event.attempt or trial.worker is WorkerState.STOPPING or index not in trial.uploads:\n", "I5"),
    ("        self.end_process(trial)\n        self.checkpoints", "        self.checkpoints", "I3"),
    ("            part.resolve_deadlock()\n", "            pass\n", "I9"),
) + _of(
    "tuner/leases/part.py",
    ("self._queue.release(owner, event.token)", "False", "I9 I3"),
) + _of(
    "tuner/leases/queue.py",
    ("                self._trial_table.take_back(lease.holder)\n", "                pass\n", "I3"),
    ('            self._trial_table.hold_lent(lease.holder, lease.group, tuple(fields["gpu_ids"]))\n', "", "defect I3"),
    ("        self._granted[lease.holder] = _Lease(lease.owner, lease.token, sized)\n", "", "I3"),
    ("        del self._waiting[lease.holder]\n        self._granted", "        self._granted", "I3"),
)  # fmt: skip

NODES = _of(
    "tuner/nodes/nodes.py",
    ("[node for node in self._by_name.values() if not node.is_draining]", "list(self._by_name.values())", "I22"),
    ("(_rank(preferred, node.name), node.load)", "node.load", "I22"),
    ("            and matches(node.labels, labels or {})\n", "", "I22"),
) + _of(
    "tuner/core/resources.py",
    ('(*shape, "labels", *sorted(self.labels.items())) if self.labels else shape', "shape", "I22 I9"),
) + _of(
    "tuner/validation/queue.py",
    ("if self._trial_table[trial_id].validations[index].node == name", "if False", "I3 I9 I21 I22"),
    ("table.lend(holder, resources, preferred=trial.nodes)", "table.lend(holder, resources)", "I22"),
    ("node = table.nodes.place(preferred=trial.nodes)", "node = next((each.name for each in table.nodes), None)", "I22"),
    ("limit is None or nodes.has_any_announced_end([validation.node])", "limit is None", "I12"),
    ("        is_over = len(validation.losses) >= limit\n", "        is_over = len(validation.losses) > limit\n", "I12"),
) + _of(
    "tuner/leases/queue.py",
    ("self._trial_table.lend(lease.holder, sized, only=node)", "self._trial_table.lend(lease.holder, sized)", "I22 I4"),
) + _of(
    "tuner/core/timeouts.py",
    ("            self._evacuated.add(trial_id)\n", "", "I12"),
    ("return self._remnants.due_s(trial_id) is not None", "return False", "I12 I3 defect I9"),
) + _of(
    "tuner/nodes/unmet_demand.py",
    ("            if matches(node.labels, wanted.labels)\n", "", "I22"),
    ("        tally.add(demand_of(trial), num_counted)\n", "", "I22"),
) + _of(
    "tuner/core/events.py",
    ("    labels: Annotated[Mapping[str, str], OPTIONAL] = field(default_factory=dict)\n    why:", "    labels: Annotated[Mapping[str, str], NEVER] = field(default_factory=dict)\n    why:", "I7 I22"),
) + _of(
    "tuner/nodes/waits.py",
    ("        for key in self._deadlines.due.keys() - lacking.keys():\n            self._deadlines.cancel(key)\n", "", "I9 I7 I20 I12"),
) + _of(
    "tuner/core/experiment.py",
    ("if self.settings.max_losses is not None and not is_announced:", "if self.settings.max_losses is not None:", "I12"),
    ("event.failure.kind != CHECKPOINT_LOST", "event.failure", "I12"),
    ("and is_counted and len(trial.losses) >= limit", "and is_counted and len(trial.losses) > limit", "I12"),
) + _of(
    "tuner/nodes/part.py",
    ("                    self._core.intend_pause(trial, reason)\n                    self._expect_evacuation", "                    self._expect_evacuation", "I22"),
    ("                core.note_loss(trial, gone.message)\n", "                pass\n", "I12"),
    ("        nodes.leave(name)\n", "", "I22"),
    ("            if any(other in nodes for other in trial.nodes if other != name):\n", "            if False:\n", "I4 I13"),
    ("                core.end_attempt(trial, Outcome.LOST)\n        for part in", "                pass\n        for part in", "I13 I3 I4"),
) + _of(
    "tuner/core/lifecycle.py",
    ("Outcome.STOPPED: TrialMove.REQUEUE,", "Outcome.STOPPED: TrialMove.FAIL,", "defect I12"),
) + _of(
    "tuner/core/trial.py",
    ("        self.farthest_iteration, self.num_vain_attempts, self.losses = iteration, 0, ()\n", "        self.farthest_iteration, self.num_vain_attempts = iteration, 0\n", "I12"),
) + _of(
    "tuner/core/trial_table.py",
    ('        self.nodes.load_state_dict(state.get("nodes", ()))\n', "", "I3 I7 I22 defect"),
) + _of(
    "tuner/core/trial.py",
    ("    nodes: Annotated[tuple[str, ...], OPTIONAL] =", "    nodes: Annotated[tuple[str, ...], NEVER] =", "I3 I7 I22 defect"),
    ("    nodes: Annotated[tuple[str, ...], OPTIONAL] = ()\n    labels: Annotated[Mapping[str, str], OPTIONAL] =", "    nodes: Annotated[tuple[str, ...], OPTIONAL] = ()\n    labels: Annotated[Mapping[str, str], NEVER] =", "I7 I22"),
) + _of(
    "tuner/validation/records.py",
    ("    node: Annotated[str, OPTIONAL] =", "    node: Annotated[str, NEVER] =", "I3 I7 I22 defect"),
)  # fmt: skip

MUTANTS = [
    *LOGGERS,
    *DRIVER,
    *CORE,
    *CHECKPOINTS,
    *EXPLOITS,
    *BUDGETS,
    *VALIDATIONS,
    *JOURNAL,
    *RECORDS,
    *RESTORE,
    *SNAPSHOTS,
    *SCHEDULERS,
    *SEARCHERS,
    *TRAINING,
    *NODES,
]

ESCAPING = _of(
    "tuner/core/checkpoints.py",
    # Few trials of the simulation are asked to save at the iteration at which they were cloned.
    ("if trial.grafts and latest.index < trial.grafts[-1].first_checkpoint:", "if False:", "I9"),
) + _of(
    "tuner/core/trial.py",
    # Only a trial that is lost before and after a snapshot is given up too late.
    ("    losses: Annotated[tuple[tuple[int, str], ...], OPTIONAL] = ()\n    uploads:", "    losses: Annotated[tuple[tuple[int, str], ...], NEVER] = ()\n    uploads:", "I20 I12 I7"),
) + _of(
    "tuner/nodes/part.py",
    # What waits for a node in vain holds no slot, so the next suggestion has mostly been asked for.
    ("            core.give_up(trial)\n            core.needs_scheduling = True\n", "            core.give_up(trial)\n", "I9"),
) + _of(
    "tuner/leases/queue.py",
    # What runs on other nodes ends at some time, and only then is the deadlock ended.
    ("        elif not (leases := self._stuck_on_a_node(running, waiting)):\n            return None\n", "        else:\n            return None\n", "I9"),
) + _of(
    "tuner/core/timeouts.py",
    # Nodes of an earlier driver count as gone, so this shows only if the end of a worker that was
    # killed is written behind a snapshot.
    ('            state["evacuations"] = evacuations\n', "            pass\n", "I7 I20"),
) + _of(
    "tuner/core/exploits.py",
    # Shows only if a trial fails between its first report and save after an exploit, and the
    # donor's checkpoint is then damaged.
    ("if kept.iteration <= graft.checkpoint.iteration and", "if True and", "I2"),
) + _of(
    "tuner/core/unanswered_reports.py",
    # Trials that are paused in the simulation save on demand.
    ("            save or trial.source or trial.uploads", "            save or trial.uploads", "I9"),
) + _of(
    "tuner/core/experiment.py",
    # A trial that is paused with an older checkpoint repeats what it has lost when it is resumed:
    # later than it should, but with the same outcome.
    ("            if latest is not None and latest.iteration == trial.iteration:", "            if latest is not None:", "I17 I12"),
) + _of(
    "schedulers/halving/promotion_rule.py",
    # Trials of the simulation report at each iteration, so they never skip the level at which they
    # are to pause.
    ("if place is None or report.time < place.level or not rungs.is_waiting(report.trial_id):", "if place is None or report.time != place.level or not rungs.is_waiting(report.trial_id):", "I17"),
) + _of(
    "tuner/driver/journal_log.py",
    # What is not deleted after a flush is deleted when the driver closes.
    ("        self._deleter.release()\n", "", "I16"),
) + _of(
    "tuner/core/checkpoints.py",
    # A trial that exploits another one saves first what it gives up, which only wastes time.
    ("        if intention is None or intention.reply is ReportReply.EXPLOIT:", "        if intention is None:", "I12"),
) + _of(
    "tuner/callbacks/files/trial_file.py",
    # Needs a disk that is full just when an interrupted trial is resumed: found after a minute or
    # more.
    ("        if trial.status is Status.TERMINATED and trial.ending is not TerminationReason.INTERRUPTED:\n            self.forget", "        if trial.is_finished:\n            self.forget", "I19"),
) + _of(
    "tuner/callbacks/callback_list.py",
    # Likewise.
    ("(file := known or self._opened(logger))", "(file := self._opened(logger))", "I19"),
)  # fmt: skip
"""Defects that the simulation does not find within a minute, with the reason; unit tests find them."""
