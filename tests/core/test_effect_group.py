"""Groups of effects make up the latent vector of a prior, in its order, and a prior refuses groups that do not."""

import numpy as np
import pytest

import manyarms as ma
from manyarms.core.effect_group import EffectGroup
from manyarms.errors import DataTypeError, ShapeError

MIXED = ma.MixedEffects(np.eye(4)[:, :3], 2)


def prior(effects):
    return ma.HierarchicalGaussian(np.zeros(6), np.eye(6), MIXED, 1.0, effects=effects)


@pytest.mark.parametrize(
    ("effects", "error", "message"),
    [
        (7, DataTypeError, "must be a sequence of EffectGroup; got int"),
        (["category"], DataTypeError, "must be a sequence of EffectGroup; got list"),
        ([EffectGroup("category", 2, 2)], ShapeError, "make up 4 latent dimensions; the mixing has 6"),
        ([EffectGroup("category", 2, 3)], ShapeError, "of a MixedEffects with dim=2 must have part_dim=2"),
    ],
)
def test_groups_that_do_not_make_up_the_latent_vector_are_refused(effects, error, message, own_errors):
    with pytest.raises(error, match=message) as caught:
        prior(effects)
    assert caught.value.argument == "effects"


def test_groups_follow_one_another_in_the_latent_vector():
    groups = (EffectGroup("category", 2, 2, labels=("tea", "mug")), EffectGroup("tag", 1, 2))
    assert prior(groups).effects == groups


def test_a_group_has_a_label_for_each_effect_or_none():
    with pytest.raises(ShapeError, match="category has 3 effects; got 2 labels"):
        EffectGroup("category", 3, 2, labels=("tea", "mug"))
