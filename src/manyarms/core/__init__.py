"""The nouns: logged data, priors and posteriors over weights, statistics, policies, estimates."""

# Other packages import these names from here.
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from manyarms.core.action_columns import as_column, as_embedding_column, as_path_column, as_tag_column
from manyarms.core.action_covariance import ActionCovariance
from manyarms.core.arrow_columns import codes_of, column_of, whole_numbers_of
from manyarms.core.bound_policy import PolicyWithOwnFeatures, with_own_features
from manyarms.core.catalog import Catalog
from manyarms.core.choices import Choices, RowError
from manyarms.core.effect_group import EffectGroup
from manyarms.core.eligibility import PAIRS_PER_BLOCK, Eligibility, SharedSet, as_eligibility, eligible_blocks
from manyarms.core.estimate import Estimate, Method
from manyarms.core.feature_map import OTHER, FeatureMap, as_contexts
from manyarms.core.feature_mass import FeatureMass
from manyarms.core.fingerprint import Fingerprint, any_shared
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.labels import MISSING, Codes, TagRow, encode, is_missing
from manyarms.core.latent_covariance import MAX_DENSE_LATENT, BlockFactor, LatentFactor
from manyarms.core.logged_data import LoggedData, Logs, as_propensities
from manyarms.core.mixing import MAX_DENSE, DenseMixing, MixedEffects
from manyarms.core.observed_rows import ObservedGroup, ObservedRows
from manyarms.core.policy import Policy
from manyarms.core.result_tables import SHOWN, Records, Tabular, as_arrow, html_facts, html_table
from manyarms.core.statistics import ActionRows, ActionSums, Statistics, StatisticsSum
