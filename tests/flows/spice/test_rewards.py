import math

import pytest

from flows.spice import rewards
from flows.spice.config import ChallengerSettings
from tasks.normalise import centre


# exp(-(p(1 - p) - 0.25)^2 / 0.02), by hand: at 0/8 the difference is 0.25, so exp(-3.125); at 1/8
# it is
# 0.25 - 7/64 = 9/64; at 2/8, 4/64; at 3/8, 1/64
@pytest.mark.parametrize(
    ("num_correct", "difference", "rounded"),
    [(0, 0.25, 0.0439), (1, 9 / 64, 0.372), (2, 4 / 64, 0.823), (3, 1 / 64, 0.988), (4, 0.0, 1.0)],
)
def test_the_variance_reward_is_highest_where_half_of_the_answers_are_right(
    num_correct, difference, rounded
):
    found = rewards.variance_reward(num_correct / 8)
    assert found == pytest.approx(math.exp(-(difference**2) / 0.02), rel=1e-12)
    assert round(found, 4 if num_correct == 0 else 3) == rounded
    assert rewards.variance_reward(1 - num_correct / 8) == pytest.approx(found, rel=1e-12)


def test_the_rivals_at_every_pass_rate_of_four_answers():
    found = {
        name: [rewards.CHALLENGER[name](n / 4) for n in range(5)] for name in rewards.CHALLENGER
    }
    assert found["absolute_zero"] == [0.0, 0.75, 0.5, 0.25, 0.0]
    assert found["threshold"] == [0.0, 1.0, 1.0, 1.0, 0.0]
    assert found["r_zero"] == [0.0, 0.5, 1.0, 0.5, 0.0]
    assert found["variance"][0] == found["variance"][4] == pytest.approx(0.0439, abs=5e-5)


def test_an_invalid_question_is_worth_less_than_any_valid_one():
    rho = ChallengerSettings().invalid_reward
    assert (
        rho == -0.1 < min(reward(n / 8) for reward in rewards.CHALLENGER.values() for n in range(9))
    )


def test_advantages_are_centred_and_not_divided():
    assert centre([1.0, 0.0439, -0.1, -0.1]) == pytest.approx(
        [0.789025, -0.167075, -0.310975, -0.310975]
    )
    assert centre([1.0] * 2 + [0.0] * 6) == [0.75] * 2 + [-0.25] * 6
    assert centre([-0.1] * 8) == [0.0] * 8
