"""Sessions of an experiment without driver and journal: suggestions replayed to a searcher."""

import json

from tuner.core.events import SearchEnded, SuggestionPostponed, TrialSuggested
from tuner.restore.search_adapter import SearchAdapter


class Sessions:
    """Runs trials one after another, up to two at a time, and restores with other declarations.

    Attributes:
        configs: What has been run, in order.
    """

    def __init__(self, seed=0):
        self._seed = seed
        self._log = []  # answers, and ids of trials that ended

    @property
    def configs(self):
        return [dict(said.config) for said in self._log if isinstance(said, TrialSuggested)]

    def run(self, searcher, space, num_samples, limit=200, num_slots=2, *, from_snapshot=False):
        """Run a session until nothing is left or the limit is reached; return what it has run.

        With `from_snapshot` at most the number of samples differs from the session before.
        """
        snapshot = json.dumps(self.adapter.state_dict()) if from_snapshot else ""
        assert searcher.set_search_properties(
            "loss", "min", space, seed=self._seed, num_samples=num_samples
        )
        self.searcher, self.adapter = searcher, SearchAdapter(searcher, space, lambda config: {})
        if snapshot and self.adapter.keeps_state:
            self.adapter.load_state_dict(json.loads(snapshot))
        else:
            self._replay()
        before = len(self.configs)
        total = self.adapter.num_trials_for(num_samples)
        running = self._running()
        while len(self.configs) - before < limit:
            number = len(self.configs)
            answer = None
            if len(running) < num_slots and (total is None or number < total):
                answer = self.adapter.ask(f"t{number:05d}")
                if isinstance(answer, SearchEnded):
                    break
                self._log.append(answer)
            if isinstance(answer, TrialSuggested):
                running.append(answer.trial_id)
            elif running:
                assert answer is None or isinstance(answer, SuggestionPostponed)
                self._log.append(running.pop(0))
                self._end(self._log[-1])
            else:
                break
        return self.configs[before:]

    def _replay(self):
        for said in self._log:
            if isinstance(said, str):
                self._end(said)
            else:
                self.adapter.replay(said)

    def _running(self):
        ended = {said for said in self._log if isinstance(said, str)}
        names = [said.trial_id for said in self._log if isinstance(said, TrialSuggested)]
        return [name for name in names if name not in ended]

    def _end(self, trial_id):
        if trial_id in self.adapter.excluded:
            if self.adapter.excluded[trial_id]:
                self.searcher.on_trial_discard(trial_id)
            return
        number = int(trial_id[1:])
        result = {"loss": number * 7 % 11 / 11, "training_iteration": 1}
        self.searcher.on_trial_result(trial_id, result)
        self.searcher.on_trial_complete(trial_id, result)
