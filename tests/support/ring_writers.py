"""A writer of one policy's ring whose arguments may be left out."""

import numpy as np

from remuda.experience.ring_block import Choices, StreamPlan, TurnOutcomes
from remuda.experience.writer import BlockWriter


class ExperienceWriter(BlockWriter):
    """Writes the streams of one policy into its ring, for one actor."""

    def __init__(self, experience, actor=0, dealt=False):
        streams = experience.rings[actor].num_streams
        super().__init__([(experience, 0)], actor, 0 if dealt else streams)
        self.room = self.backpressure[0] if self.backpressure else None
        self._plan = StreamPlan(np.array([0, streams]), np.arange(streams))

    def decide(self, *given, **options):
        """Write a decision of the active streams; see `_choices`. The base class passes a plan."""
        super().decide(*given) if isinstance(given[0], StreamPlan) else super().decide(
            self._plan, self._choices(*given, **options)
        )

    def outcome(self, *given, **options):
        """Write the outcomes; see `_outcomes`. The base class passes a plan."""
        super().outcome(*given) if isinstance(given[0], StreamPlan) else super().outcome(
            self._plan, self._outcomes(*given, **options)
        )

    def _choices(
        self,
        observations,
        actions,
        version,
        active,
        log_probs=None,
        masks=None,
        recurrent_states=None,
        before=None,
    ):
        streams, shape = self.ring.num_streams, self.ring.shape
        zeros = np.zeros(streams, np.float32)
        return Choices(
            active,
            observations,
            actions,
            zeros if log_probs is None else log_probs,
            np.ones((streams, shape.mask_size), bool) if masks is None else masks,
            np.zeros((streams, shape.memory), np.float32)
            if recurrent_states is None
            else recurrent_states,
            np.array([version]),
            zeros if before is None else before,
        )

    def _outcomes(
        self, rewards, terminated, truncated, final_observations, active, final_masks=None
    ):
        if final_masks is None:
            final_masks = np.ones((self.ring.num_streams, self.ring.shape.mask_size), bool)
        return self.results(
            TurnOutcomes(active, rewards, terminated, truncated, final_observations, final_masks)
        )
