"""Tools that several passes share: match, replace, layout, convolutions, shapes, opsets."""
