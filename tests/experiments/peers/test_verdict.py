"""Agreement of the peers."""

import math

import pytest

from experiments.peers import verdict


def test_a_difference_is_reported_by_name_and_nan_is_a_disagreement():
    ours = {"logits": [[2.0, -4.0]], "losses": [2.0, 1.0]}
    torch = {"logits": [[2.0, -4.0001]], "losses": [2.1, math.nan]}
    outputs = {"ours": ours, "torch": torch, "flax": ours}
    differences, disagreements = verdict.check_agreement(outputs)
    assert differences["flax"] == {"logits": 0.0, "first_loss": 0.0, "second_loss": 0.0}
    assert differences["torch"]["logits"] == pytest.approx(2.5e-5)
    assert differences["torch"]["first_loss"] == pytest.approx(0.05)
    assert disagreements == {
        "torch": "torch computes another network: first loss differs by 0.05, allowed are 0.001"
    }


@pytest.mark.parametrize(
    ("losses", "disagreeing"),
    [
        # ours and Keras differ from each other, neither from the median
        ({"ours": 0.92, "flax": 0.96, "torch": 1.0, "keras": 1.05}, set()),
        ({"ours": 0.8, "flax": 1.0, "torch": 1.0, "keras": 1.05}, {"ours"}),
        ({"ours": 1.0, "flax": 1.0, "torch": 2.0, "keras": 1.05}, {"torch"}),
        ({"ours": math.nan, "flax": 1.0, "torch": 1.0}, {"ours"}),
        ({"ours": 1.2, "torch": 1.0}, {"ours"}),
        ({"ours": math.nan, "torch": math.nan}, {"ours", "torch"}),
    ],
)
def test_second_losses_including_ours_are_compared_with_the_median(losses, disagreeing):
    outputs = {peer: {"logits": [[1.0]], "losses": [2.0, loss]} for peer, loss in losses.items()}
    assert set(verdict.check_agreement(outputs)[1]) == disagreeing


def test_a_peer_that_cannot_be_trained_is_compared_by_its_logits():
    ours = {"logits": [[2.0, -4.0]], "losses": [2.0, 1.0]}
    outputs = {"ours": ours, "same": {"logits": [[2.0, -4.0]]}, "other": {"logits": [[2.0, -3.0]]}}
    differences, disagreements = verdict.check_agreement(outputs)
    assert differences["same"] == {"logits": 0.0}
    assert disagreements == {
        "other": "other computes another network: logits differ by 0.25, allowed are 0.0001"
    }
