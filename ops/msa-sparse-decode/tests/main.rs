//! The tests of `msa-sparse-decode`: one binary, since linking is what costs.
