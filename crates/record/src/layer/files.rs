//! Files of a recording: creation, rotation, limits.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use polyrpc_core::digits::parse_decimal;

use crate::block::{FILE_MAGIC, MAX_STORED};
use crate::writer::Writer;

/// Limits of the files.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileOptions {
    pub(super) rotate_at: u64,
    pub(super) total: u64,
    pub(super) min_free: u64,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { rotate_at: 256 << 20, total: 2 << 30, min_free: 1 << 30 }
    }
}

/// Whether a file begins as a recording does, as far as it goes: one may be empty.
fn is_recording(path: &Path) -> io::Result<bool> {
    let mut start = Vec::with_capacity(FILE_MAGIC.len());
    File::open(path)?.take(FILE_MAGIC.len() as u64).read_to_end(&mut start)?;
    Ok(FILE_MAGIC.starts_with(&start))
}

/// The files of a recorder.
pub(super) struct Files {
    path: PathBuf,
    options: FileOptions,
}

impl Files {
    pub(super) fn new(path: PathBuf, options: FileOptions) -> Self {
        Self { path, options }
    }

    /// Creates the file. An existing recording of that name is renamed first. Any other file is an error: its name was
    /// given by mistake.
    pub(super) fn create(&self) -> io::Result<Writer<File>> {
        if self.path.exists() {
            if !is_recording(&self.path)? {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "the file exists and is no recording",
                ));
            }
            let renamed = self.archive()?;
            let to = renamed.display();
            tracing::info!(target: "polyrpc::record", %to, "the earlier recording was renamed");
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path)?;
        Writer::new(file)
    }

    /// Whether the file is full.
    pub(super) fn is_full(&self, writer: &Writer<File>) -> bool {
        // Pending entries and the index follow.
        writer.position() + 2 * MAX_STORED as u64 >= self.options.rotate_at
    }

    /// Renames the full file, and removes the oldest ones that exceed the total. Returns its new path.
    pub(super) fn archive(&self) -> io::Result<PathBuf> {
        let archived = self.list_archived()?;
        let next = self.numbered_path(archived.last().map_or(1, |(number, _)| number + 1));
        fs::rename(&self.path, &next)?;
        self.trim().map(|()| next)
    }

    /// Removes the oldest full files so that the total stays within its limit, with room for the current file.
    pub(super) fn trim(&self) -> io::Result<()> {
        let archived = self.list_archived()?;
        let sizes = archived.iter().map(|(_, path)| fs::metadata(path).map_or(0, |file| file.len()));
        let mut total = sizes.sum::<u64>().saturating_add(self.options.rotate_at);
        for (_, path) in archived {
            if total <= self.options.total {
                break;
            }
            let size = fs::metadata(&path).map_or(0, |file| file.len());
            fs::remove_file(path)?;
            total = total.saturating_sub(size);
        }
        Ok(())
    }

    /// Whether the file system has less free space than required.
    pub(super) fn lacks_space(&self) -> bool {
        let free =
            rustix::fs::statvfs(self.folder()).map(|system| system.f_bavail.saturating_mul(system.f_frsize));
        free.is_ok_and(|free| free < self.options.min_free)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        }
    }

    fn numbered_path(&self, number: u64) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number:06}"));
        name.into()
    }

    /// Lists the full files by their numbers.
    fn list_archived(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut prefix: OsString = self.path.file_name().unwrap_or_default().to_owned();
        prefix.push(".");
        let prefix = prefix.into_encoded_bytes();
        let mut found = Vec::new();
        for entry in fs::read_dir(self.folder())? {
            let entry = entry?;
            let name = entry.file_name().into_encoded_bytes();
            let number = name.strip_prefix(prefix.as_slice()).and_then(|rest| std::str::from_utf8(rest).ok());
            if let Some(number) = number.filter(|rest| rest.len() >= 6).and_then(parse_decimal) {
                found.push((number, entry.path()));
            }
        }
        found.sort();
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    #[test]
    fn only_names_that_end_in_digits_are_full_files() {
        let folder = std::env::temp_dir().join(format!("polyrpc-record-files-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        for name in ["calls.rec.000001", "calls.rec.+00002", "calls.rec.00003", "calls.rec.00004x"] {
            fs::write(folder.join(name), b"").unwrap();
        }
        let files = Files::new(folder.join("calls.rec"), FileOptions::default());
        let full = files.list_archived();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(full.unwrap(), [(1, folder.join("calls.rec.000001"))]);
    }
}
