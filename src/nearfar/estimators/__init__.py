"""The scikit-learn side: what every learner shares, while a method's own module holds its formula."""
