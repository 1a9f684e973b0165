//! What the compiler says of programs that cannot be: it names the cause.
//!
//! What it says stands in `tests/diagnostics`; `TRYBUILD=overwrite` writes it anew, for another compiler.

#[test]
fn compiler_errors_name_the_cause() {
    trybuild::TestCases::new().compile_fail("tests/diagnostics/*.rs");
}
