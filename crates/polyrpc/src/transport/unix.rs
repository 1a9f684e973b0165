use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// A listening Unix socket, whose file is removed with it.
///
/// The file's permissions depend on the process's umask (0777 without it); a client needs write permission to connect.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// The file that was created here. Another process may have replaced it with its own socket since.
    file: Option<SocketFile>,
}

impl UnixSocket {
    /// Binds the socket. A stale socket of a dead process is replaced.
    ///
    /// # Errors
    ///
    /// If a process listens on the socket, or if the file is of another kind; neither is touched.
    pub(crate) async fn bind(path: &Path) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_stale(path).await?;
                UnixListener::bind(path)?
            }
            bound => bound?,
        };
        Ok(Self { listener, path: path.to_owned(), file: SocketFile::read(path) })
    }

    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // While the listener is open, the file's inode number cannot be reused.
        if self.file.is_some() && self.file == SocketFile::read(&self.path) {
            // An error means that it is already removed.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket on which no process listens.
async fn remove_stale(path: &Path) -> io::Result<()> {
    let shown = path.display();
    let occupied = |text: String| io::Error::new(io::ErrorKind::AddrInUse, text);
    let found = fs::symlink_metadata(path)?;
    if !found.file_type().is_socket() {
        return Err(occupied(format!("{shown} exists and is not a socket")));
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        // A full backlog means that there is a listener, too.
        Ok(_) => return Err(occupied(format!("another process listens on {shown}"))),
        Err(error) => {
            return Err(occupied(format!(
                "{shown} exists, and whether a process listens on it is unknown: {error}"
            )));
        }
    }
    if SocketFile::read(path) != Some(SocketFile::new(&found)) {
        return Err(occupied(format!("another process has just begun to listen on {shown}")));
    }
    fs::remove_file(path)
}

/// Identity of the socket file at a path.
#[derive(Debug, PartialEq, Eq)]
struct SocketFile {
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn read(path: &Path) -> Option<Self> {
        fs::symlink_metadata(path)
            .ok()
            .filter(|found| found.file_type().is_socket())
            .map(|found| Self::new(&found))
    }

    fn new(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process;

    use super::*;

    /// A directory that is removed after the test.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("polyrpc-{}-{name}", process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn socket_path(&self) -> PathBuf {
            self.0.join("socket")
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    async fn refusal(path: &Path) -> String {
        let error = UnixSocket::bind(path).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        error.to_string()
    }

    #[tokio::test]
    async fn regular_file_is_not_replaced_by_a_socket() {
        let directory = Directory::new("regular");
        fs::write(directory.socket_path(), "precious").unwrap();
        let text = refusal(&directory.socket_path()).await;
        assert_eq!(text, format!("{} exists and is not a socket", directory.socket_path().display()));
        assert_eq!(fs::read(directory.socket_path()).unwrap(), b"precious");
    }

    #[tokio::test]
    async fn directory_and_link_are_not_replaced_by_a_socket() {
        let directory = Directory::new("link");
        fs::create_dir(directory.socket_path()).unwrap();
        assert!(refusal(&directory.socket_path()).await.ends_with("exists and is not a socket"));
        let link = directory.0.join("link");
        symlink(directory.0.join("nowhere"), &link).unwrap();
        assert!(refusal(&link).await.ends_with("exists and is not a socket"));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[tokio::test]
    async fn socket_of_a_dead_process_is_replaced() {
        let directory = Directory::new("stale");
        drop(std::os::unix::net::UnixListener::bind(directory.socket_path()).unwrap());
        let socket = UnixSocket::bind(&directory.socket_path()).await.unwrap();
        let (accepted, connected) =
            tokio::join!(socket.accept(), UnixStream::connect(directory.socket_path()));
        assert!(accepted.is_ok() && connected.is_ok());
    }

    #[tokio::test]
    async fn socket_of_a_living_process_is_left_alone() {
        let directory = Directory::new("living");
        let socket = UnixSocket::bind(&directory.socket_path()).await.unwrap();
        let text = refusal(&directory.socket_path()).await;
        assert!(text.starts_with("another process listens on "), "{text}");
        drop(socket);
        assert!(!directory.socket_path().exists());
    }

    #[tokio::test]
    async fn file_that_replaced_the_socket_is_kept() {
        let directory = Directory::new("taken");
        let socket = UnixSocket::bind(&directory.socket_path()).await.unwrap();
        fs::remove_file(directory.socket_path()).unwrap();
        let other = UnixSocket::bind(&directory.socket_path()).await.unwrap();
        drop(socket);
        assert!(directory.socket_path().exists());
        fs::remove_file(directory.socket_path()).unwrap();
        fs::write(directory.socket_path(), "precious").unwrap();
        drop(other);
        assert_eq!(fs::read(directory.socket_path()).unwrap(), b"precious");
    }
}
