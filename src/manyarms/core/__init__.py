"""The nouns: logged data, priors and posteriors over weights, statistics, policies, estimates."""
