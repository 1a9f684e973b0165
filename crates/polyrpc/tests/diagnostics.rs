//! Compiler errors of invalid programs: they name the cause.
//!
//! The expected output is in `tests/diagnostics`; `TRYBUILD=overwrite` rewrites it, for another compiler.

#[test]
fn compiler_errors_name_the_cause() {
    trybuild::TestCases::new().compile_fail("tests/diagnostics/*.rs");
}
