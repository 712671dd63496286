"""Tools that passes share: match, replace, fold, infer."""
