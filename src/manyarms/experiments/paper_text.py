"""The sentences of the paper's experimental sections, in order. Claims quote them; the others say why none does.

`tests/experiments` checks that each claim of the paper quotes a sentence here, and that each sentence without a reason
is quoted by a claim. Names of methods are written out, mathematics in plain letters. "…" stands for words left out; a
sentence with two claims in it is two rows. Reasons are Markdown.
"""

from __future__ import annotations

from dataclasses import dataclass

TAKEN = "Setting, taken over."
NO_CLAIM = "Says nothing about results."
NO_FIGURES = "The source of the paper has no figures; we test what its text says."
CAPTION = "Caption; the figure is drawn anew as"


@dataclass(frozen=True)
class PaperSentence:
    """A sentence, or a few, of the paper's text; `reason` says why no claim quotes it, and is empty where one does."""

    section: str
    words: str
    reason: str = ""


OUTPERFORMS = "Overall, sDM consistently outperforms the baselines in both OPE and OPL."
SMALL_N = "This performance gap becomes even more significant when sample size n is small."
CLUSTERED_LEAD = (
    "IPS variants for large action spaces such as MIPS and PC outperform all other IPS variants and standard DM in OPE…"
)
CLUSTERED_LEARN = "…but this increase in performance does not translate to OPL."
GAP_GROWS = (
    "The results in [Figure 3] reveal that the performance gap between sDM and DM (Bayes) becomes more significant "
    "when the number of actions K increases."
)
COMPETITIVE = "…we compare it to the most competitive baseline in OPL simulations, DM (Bayes)…"
CLICKS_OPL = "Despite the misspecification, sDM significantly outperforms all methods in OPL."
CLICKS_OPE = "However, sDM experiences a drop in OPE performance."
CLICKS_IPS_OPE = "IPS variants like MIPS, PC, and snIPS perform well in OPE…"
CLICKS_IPS_OPL = (
    "…but they fail to match (or even come close to) sDM's performance in OPL, even with misspecified likelihood."
)
MOVIELENS = (
    "Even though the latent structure assumed by sDM is not inherently present in MovieLens, sDM still outperforms the "
    "baselines by learning it offline."
)
KUAIREC_DM = "First, sDM outperforms all DM variants, including DM (Bayes) and DM (Freq)…"
KUAIREC_IPS = "When compared to IPS variants, sDM outperforms all of them except for MIPS…"
KUAIREC_SMALL_N = "In low-data regimes (small n), sDM outperforms MIPS…"
KUAIREC_LARGE_N = "…whereas MIPS outperforms sDM when the number of samples is sufficiently large."
KUAIREC_2000 = "sDM slightly outperforms MIPS when n=2000."
GRID_OPE = "While sDM maintains its advantage over baselines…"
GRID_OPE_SMALL_N = "…particularly in low-data settings, …"
IPS_BEATS_DM = (
    "IPS-based methods (snIPS, DR and MIPS) outperformed standard direct methods (DM (Bayes) and DM (Freq)) in the OPE "
    "experiments…"
)
IPS_BEATS_DM_NOT = "…which was not the case in OPL experiments."
ONLY_DM = "The only direct method that outperformed them in OPE is sDM."
CLUSTERED_K = "Also, MIPS and PC outperform other IPS-variants when the number of action is 1000…"
CLUSTERED_SMALL_K = "…but fail to outperform standard methods when K=100."
GRID_K = "For OPL, the gap in performance between sDM and all other baselines widens when K increases."
GRID_DIM = "It also widens when the problem becomes higher-dimensional (e.g., increased value of d')."
MOVIELENS_MORE = "Additional MovieLens Experiments. Similar conclusions are drawn as in the main text."
GREEDY_LOG = "The conclusions are similar to those in [Section 6]…"
GREEDY_IPS = "…except that IPS outperforms the other variants DR and snIPS when the logging policy is performing well."
GREEDY_MOVIELENS = (
    "Also, the results for the MovieLens problems are given in [a figure] and the conclusions are similar to those "
    "made in [Section 6]."
)
CLICKS_MORE_OPE = "Likelihood misspecification affect sDM's performance on OPE…"
CLICKS_MORE_OPL = "…but sDM still outperforms all methods by a large margin in OPL."
PRIOR_WORSE = "sDM's performance decreases with increasing misspecification, …"
PRIOR_STILL = "…yet sDM with misspecification still outperforms the most competitive baseline…"
PRIOR_LARGE_K = "…especially when K is large."
PRIOR_MEANS = (
    "We also observe that the impact of prior covariance misspecification is less significant compared to prior mean "
    "misspecification."
)
GREEDY = (
    "As predicted by our theory, the results show that the greedy policy has better average performance over multiple "
    "bandit instances sampled from the prior."
)
KUAIREC_OPL = "Specifically, sDM and MIPS demonstrate comparable and superior performance to other baselines in OPL…"
KUAIREC_OPE = "…while sDM outperforms the baselines in OPE."
SAME_COST = "This is exactly the cost of the standard prior in [eq. 3]."
JOINT_COST = (
    "In contrast, this strictly improves the computational efficiency of jointly modeling the action parameters…"
)

PAPER_TEXT = tuple(
    PaperSentence(section, words, reason)
    for section, entries in {
        "4.2": ((SAME_COST, ""), (JOINT_COST, "")),
        "6": (
            ("We evaluate sDM using both synthetic and real datasets.", TAKEN),
            ("For OPL, we use the average reward relative to the optimal policy … for OPE, … (MSE).", TAKEN),
        ),
        "6.1, Setting": (
            (
                "We simulate synthetic data using the linear-Gaussian model in [eq.] with σ = 1.",
                TAKEN,
            ),
            ("The contexts X are sampled uniformly from [-1, 1]^d, with d = 10.", TAKEN),
            ("The matrices W_a are sampled uniformly from [-1, 1]^(d x d'), where d' = 10.", TAKEN),
            ("We set Σ = 3 I and Σ_a = I, meaning the latent parameters are more uncertain …", TAKEN),
            ("The latent mean μ is randomly sampled from [-1, 1]^d'.", TAKEN),
            ("The number of actions is K = 10³, and we use a uniform logging policy to collect data.", TAKEN),
            (
                "Additional experiments with different values of d', K, d, and logging policies …",
                "Tested with Appendices F.2 and F.3; d is not varied here, nor in the paper's appendix.",
            ),
        ),
        "6.1, Baselines": (
            ("First, we use sDM under prior [eq.].", TAKEN),
            ("Second, we examine DM (Bayes), … obtained by marginalizing out the latent parameters ψ …", TAKEN),
            ("Thus DM (Bayes) is a standard Bayesian DM that does not capture arm reward correlations.", TAKEN),
            (
                "We also include DM (Freq), which estimates θ_a by the MLE.",
                "Setting; a ridge in the appendix, and here.",
            ),
            (
                "We include IPS …, self-normalized IPS (snIPS) …, and doubly robust (DR) …, which we optimize to learn "
                "the optimal policy.",
                "Setting in part: the paper does not say how they are optimized. Here a linear softmax policy is "
                "trained by L-BFGS.",
            ),
            ("MIPS … and PC … are also included.", TAKEN),
            ("Implementation details of baselines is provided in [Appendix F.1].", NO_CLAIM),
        ),
        "6.1, Results": (
            ("In [Figure 2] (first two columns), we plot the results for OPE and OPL.", NO_FIGURES),
            (OUTPERFORMS, ""),
            (SMALL_N, ""),
            (
                "These results highlight sDM's enhanced efficiency in using available logged data, …",
                "An interpretation.",
            ),
            (CLUSTERED_LEAD, ""),
            (CLUSTERED_LEARN, ""),
            (
                "Performance of sDM and baselines on synthetic and MovieLens problems.",
                f"{CAPTION} [figure-2](#figure-2).",
            ),
        ),
        "6.1, Scaling": (
            (
                "sDM achieves improved scalability compared to standard DM as leverages data more efficiently.",
                "A conclusion from the gap that grows with K: see [scaling-k](#scaling-k).",
            ),
            (
                "While it still learns a d-dim. parameter for each action a, it does so by considering …",
                "A definition.",
            ),
            (
                "This is crucial, especially given that many actions may not even be observed in S.",
                "An interpretation.",
            ),
            (COMPETITIVE, ""),
            (GAP_GROWS, ""),
            (
                "Hence, despite the necessity for sDM to learn distinct parameters for each action, …, it still enjoys "
                "good scalability.",
                "A conclusion from the gap that grows with K: see [scaling-k](#scaling-k).",
            ),
            ("sDM vs. DM (Bayes) for varying K.", f"{CAPTION} [scaling-k](#scaling-k)."),
        ),
        "6.1, Misspecification": (
            ("We consider the case where sDM's assumed likelihood is misspecified.", TAKEN),
            ("Specifically, we simulate binary rewards using a Bernoulli-logistic model, …", TAKEN),
            ("Other DMs (DM (Bayes) and DM (Freq)) also use misspecified likelihoods.", TAKEN),
            ("Results are shown in [Figure 4].", NO_FIGURES),
            (CLICKS_OPL, ""),
            (CLICKS_OPE, ""),
            (
                "This suggests that … it still captures the ranking of actions.",
                "An interpretation. Rank correlations of estimated rewards could test it; our rows have no ranks.",
            ),
            (CLICKS_IPS_OPE, ""),
            (CLICKS_IPS_OPL, ""),
            (
                "Additional experiments with misspecified priors … yield similar findings.",
                "Tested with Appendix F.5: see [misspecified-prior](#misspecified-prior).",
            ),
            ("Effect of Misspecification.", f"{CAPTION} [misspecified-likelihood](#misspecified-likelihood)."),
        ),
        "6.2, Setting": (
            ("We use MovieLens 1M …, 1 million ratings … 6,040 users and 3,952 movies.", "Setting; 3,706 are rated."),
            ("To create a semi-synthetic environment, we first apply a low-rank factorization …", TAKEN),
            ("Movies are treated as actions, and contexts X are sampled randomly from the user vectors.", TAKEN),
            ("The reward for movie a and user u is modeled as N(x_uᵀ θ_a, 1), serving as proxy for ratings.", TAKEN),
            ("A uniform logging policy is used to collect data.", TAKEN),
        ),
        "6.2, Baselines": (
            ("We consider the same baselines as in synthetic data.", TAKEN),
            ("A prior is not needed for DM (Freq), IPS, snIPS, and DR.", NO_CLAIM),
            ("However, for DM (Bayes), a standard prior [eq. 3] is inferred from data, …", TAKEN),
            ("Unlike the synthetic experiments, the latent structure … is not inherently present …", NO_CLAIM),
            ("But we learn it by training a Gaussian Mixture Model (GMM) … into J=5 mixture components.", TAKEN),
            ("This gives rise to the mixed-effect structure … with d' = dJ = 25.", TAKEN),
            (
                "MIPS also has access to movie clusters, while we use the knn smoothing implementation of PC …",
                "Setting in part: the clusters of MIPS are those of k-means, not the components of the mixture. "
                "SLOPE++ chooses their number in evaluation; in learning there are J.",
            ),
            (
                "Note that DM (Bayes), sDM, MIPS and PC use the same subset of data (of size 1000) …",
                "Setting, in our reading: the vectors of the K = 1000 movies that were drawn.",
            ),
            ("We conduct experiments with K = 10³ randomly selected movies.", TAKEN),
        ),
        "6.2, Results": (
            ("Results are in [Figure 2] (last two columns).", NO_FIGURES),
            (MOVIELENS, ""),
        ),
        "6.3": (
            ("We also compare sDM to baselines using the KuaiRec dataset …", TAKEN),
            (
                "Unlike MovieLens, …, KuaiRec offers a fully observed user-item interaction matrix.",
                "Only a part is here.",
            ),
            ("This allows us to evaluate algorithms without relying on semi-synthetic simulations …", NO_CLAIM),
            (
                "This setup enables a comparison … where neither the prior nor the likelihood is well-specified …",
                NO_CLAIM,
            ),
            ("The true reward model is unknown and not necessarily Gaussian, …", NO_CLAIM),
            ("Due to space constraints, details … are provided in [Appendix F.7].", NO_CLAIM),
            ("The results are shown in [Figure 5].", NO_FIGURES),
            (KUAIREC_DM, ""),
            (KUAIREC_IPS, ""),
            (KUAIREC_SMALL_N, ""),
            (KUAIREC_LARGE_N, ""),
            (KUAIREC_2000, ""),
            ("OPL Results on KuaiRec.", f"{CAPTION} [kuairec](#kuairec)."),
        ),
        "F": (
            ("… our experiments were conducted on internal machines with 30 CPUs …", NO_CLAIM),
            (
                "These experiments are also reproducible with minimal computational resources.",
                "Names no amount. The CPU time of our rows is at the top of this page.",
            ),
        ),
        "F.1": (
            (
                "We implement the baselines as follows. [IPS, with max{π_0, τ}]",
                "Setting; τ is chosen by SLOPE++ in evaluation, and in learning nothing is clipped.",
            ),
            ("[snIPS]", TAKEN),
            (
                "[MIPS] We cluster actions into L groups …",
                "Setting; the paper does not give L: see [set-sizes](#set-sizes).",
            ),
            (
                "[PC] We use the Knn implementation of PC.",
                "Setting; the paper does not give k: see [set-sizes](#set-sizes).",
            ),
            ("[DM (Freq)] … where λ is a regularization hyper-parameter.", "Setting; λ is chosen by cross-validation."),
            ("This DM uses the linear-Gaussian likelihood model combined with Gaussian priors …", TAKEN),
            ("Under this prior, each action a has an associated parameter θ_a.", TAKEN),
            ("… the posterior distribution of an action parameter follows a multivariate Gaussian …", TAKEN),
            ("Then, the reward estimate is [r̂(x, a) = φ(X)ᵀ μ̂_a]", TAKEN),
            ("[DR] … r̂ is the reward model obtained using DM (Freq).", "Setting; fitted to the same log."),
        ),
        "F.2": (
            ("We provide additional OPE and OPL results. … K in {100, 1000} and d' in {5, 10, 20}.", TAKEN),
            (
                "For OPE, we fix a target policy π … averaged over 50 problem instances sampled from the prior.",
                'Setting; for the number of instances here, see "instances of each method" below each figure.',
            ),
            ("This can be seen as a proxy for our theoretical metric, Bayesian MSE (BMSE).", NO_CLAIM),
            ("The target policy is defined as ε-greedy with ε=0.5; …", TAKEN),
            ("Results are shown in [a figure].", NO_FIGURES),
            (GRID_OPE, ""),
            (GRID_OPE_SMALL_N, ""),
            (IPS_BEATS_DM, ""),
            (IPS_BEATS_DM_NOT, ""),
            (ONLY_DM, ""),
            (CLUSTERED_K, ""),
            (CLUSTERED_SMALL_K, ""),
            (
                "The average MSE of an ε-greedy target policy on synthetic problems with varying n, K and d'.",
                f"{CAPTION} [grid-ope](#grid-ope).",
            ),
            (GRID_K, ""),
            (GRID_DIM, ""),
            (
                "The average relative reward of the learned policy … on synthetic problems with varying n, K and d'.",
                f"{CAPTION} [grid-opl](#grid-opl).",
            ),
            (MOVIELENS_MORE, ""),
            (
                "The average MSE of an ε-greedy target policy on MovieLens problems with varying n, K and d'.",
                f"{CAPTION} [movielens-sizes](#movielens-sizes), where d' = 5 J.",
            ),
            (
                "The average relative reward of the learned policy … on MovieLens problems with varying n, K and d'.",
                f"{CAPTION} [movielens-sizes](#movielens-sizes), where d' = 5 J.",
            ),
        ),
        "F.3": (
            ("Here we consider the setting in [Section 6] … ε-greedy logging policy, where ε=0.5.", TAKEN),
            ("We consider both synthetic and MovieLens datasets. The results are shown in [a figure].", NO_FIGURES),
            (GREEDY_LOG, ""),
            (GREEDY_IPS, ""),
            (GREEDY_MOVIELENS, ""),
            (
                "The relative reward of the learned policy on synthetic problems with varying n, K and d' and varying "
                "logging policies.",
                f"{CAPTION} [grid-epsilon-greedy](#grid-epsilon-greedy).",
            ),
            (
                "The relative reward of the learned policy on MovieLens problems with varying n and K and varying "
                "logging policies.",
                f"{CAPTION} [movielens-epsilon-greedy](#movielens-epsilon-greedy), with K = 1000 only.",
            ),
        ),
        "F.4": (
            ("We strengthened our evaluation by assessing sDM's robustness to likelihood misspecification …", NO_CLAIM),
            ("In these experiments, the true data-generating process … differed … in two different ways …", NO_CLAIM),
            ("We also simulate when the true reward distribution differed from the likelihood …", TAKEN),
            ("For example, we simulated binary rewards using a Bernoulli-logistic model …", TAKEN),
            ("Other DMs … we add the suffix Lin to all DMs names.", NO_CLAIM),
            (
                "Overall, we make the same observations as those made in the main text.",
                "Tested with Section 6.1: see [misspecified-likelihood](#misspecified-likelihood).",
            ),
            (CLICKS_MORE_OPE, ""),
            (CLICKS_MORE_OPL, ""),
            (
                "Effect of prior mean and covariance misspecification: The average MSE of an ε-greedy target policy …",
                "Caption of the figure on misspecified likelihoods in OPE, and wrong: it is that of a figure on "
                "priors. We read it as [grid-misspecified-likelihood-ope](#grid-misspecified-likelihood-ope).",
            ),
            (
                "Effect of likelihood misspecification: The relative reward of the learned policy …",
                f"{CAPTION} [grid-misspecified-likelihood-opl](#grid-misspecified-likelihood-opl).",
            ),
        ),
        "F.5": (
            ("This is achieved by adding uniformly sampled noise from [v, v+0.5] to … μ, Σ, W_a, Σ_a …", TAKEN),
            ("We varied v in {0.5, 1, 1.5} and analyzed its impact on sDM's performance.", TAKEN),
            ("For comparison, we included the well-specified sDM and … DM (Bayes), …", TAKEN),
            (PRIOR_WORSE, ""),
            (PRIOR_STILL, ""),
            (PRIOR_LARGE_K, ""),
            (PRIOR_MEANS, ""),
            (
                "Effect of prior mean and covariance misspecification: The average relative reward of the learned "
                "policy …",
                f"{CAPTION} [grid-misspecified-prior-opl](#grid-misspecified-prior-opl).",
            ),
        ),
        "F.6": (
            ("To validate our theory that a greedy policy should be preferred … we used a performance metric …", TAKEN),
            ("To verify this, we considered the same OPL synthetic setting as in [Section 6] …", TAKEN),
            (
                "Recall that a greedy policy … while a pessimistic one … u(x, a) = α(d, δ) ‖φ(X)‖ …",
                "Setting; δ = 0.05.",
            ),
            (GREEDY, ""),
            (
                "Comparison of sDM with greedy policy and sDM with pessimistic policy in OPL: The average MSE of an "
                "ε-greedy policy …",
                "Caption, and wrong: a figure on OPL shows no MSE of a target. Drawn anew as "
                "[greedy-vs-pessimistic](#greedy-vs-pessimistic), with relative rewards.",
            ),
        ),
        "F.7, Setting": (
            ("We use the KuaiRec dataset … two matrices: big_matrix …, small_matrix …", "Only a part is here."),
            (
                "The big_matrix is used to obtain low-rank factorization embeddings …",
                "Half of the cells that are here stand in for it: see [kuairec](#kuairec).",
            ),
            (
                "The small_matrix is used to collect the sample set and to evaluate the algorithms.",
                "The other half of the cells stands in for it: see [kuairec](#kuairec).",
            ),
            ("Before applying SVD, we preprocess big_matrix …: clipped … 10 …; normalized … per user …", TAKEN),
            ("This scaling ensured that all user interaction scores ranged between 0 and 1, …", NO_CLAIM),
            ("After preprocessing, SVD was applied to the normalized matrix, …", TAKEN),
            (
                "The user embeddings are provided as input to the algorithms …, while the video embeddings are used as "
                "prior information …",
                TAKEN,
            ),
            ("The dataset also includes category information for each video, …", "Setting; another taxonomy here."),
        ),
        "F.7, Results": (
            ("Since the rewards are collected from the small_matrix, … no explicit prior …", NO_CLAIM),
            ("This characteristic makes the dataset a challenging benchmark for Bayesian algorithms …", NO_CLAIM),
            (
                "Despite this challenge, the strong performance of sDM … is particularly noteworthy.",
                "The next two rows say how strong: see [kuairec](#kuairec).",
            ),
            (KUAIREC_OPL, ""),
            (KUAIREC_OPE, ""),
            ("It is important to note that results for OPE are hard to read …", "Partial data; no threshold is given."),
            (
                "Comparison of sDM with baselines on the KuaiRec dataset for both OPE and OPL tasks.",
                f"{CAPTION} [kuairec](#kuairec).",
            ),
        ),
    }.items()
    for words, reason in entries
)
"""Every sentence of Section 6 and of the appendix on experiments."""
