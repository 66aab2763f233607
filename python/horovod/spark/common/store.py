"""Where an estimator keeps its data and its runs: a folder on any file system that fsspec supports."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

CHECKPOINT = "checkpoint.ckpt"
LOGS = "logs"


class Store:
    """A folder with the Parquet files of a training, and with the checkpoints and logs of its runs.

    Spark writes the data, and all ranks read them: if Spark runs on several hosts, a local folder must be on
    a file system that they share.

    Args:
        prefix_path: the folder, a path or a URL such as ``s3://bucket/folder``.
        train_path: the folder of the training data; None: one below ``prefix_path``, as for the next ones.
        val_path: the folder of the validation data.
        test_path: the folder of test data.
        runs_path: the folder of the runs.
        save_runs: keep checkpoints and logs.
        storage_options: parameters of the file system, such as credentials.
        checkpoint_filename: the name of a checkpoint in the folder of its run.

    Raises:
        ImportError: the package for this kind of URL is missing.
    """

    def __init__(
        self,
        prefix_path: str,
        train_path: str | None = None,
        val_path: str | None = None,
        test_path: str | None = None,
        runs_path: str | None = None,
        save_runs: bool = True,
        storage_options: Mapping[str, Any] | None = None,
        checkpoint_filename: str | None = None,
    ) -> None:
        self.prefix_path = os.fspath(prefix_path).rstrip("/") or "/"
        if "://" not in self.prefix_path and not self.prefix_path.startswith("dbfs:"):
            self.prefix_path = os.path.abspath(self.prefix_path)
        self._storage_options = dict(storage_options or {})
        self._paths = {
            "train": train_path or self.join(self.prefix_path, "intermediate_train_data"),
            "val": val_path or self.join(self.prefix_path, "intermediate_val_data"),
            "test": test_path or self.join(self.prefix_path, "intermediate_test_data"),
        }
        self._runs_path = runs_path or self.join(self.prefix_path, "runs")
        self._save_runs = save_runs
        self._checkpoint_filename = checkpoint_filename or CHECKPOINT

    @classmethod
    def create(cls, prefix_path: str, *args: Any, **kwargs: Any) -> Store:
        """Returns the store for a path: on HDFS, on Databricks, or on what fsspec supports."""
        for kind in (HDFSStore, DBFSLocalStore):
            if kind.matches(prefix_path):
                return kind(prefix_path, *args, **kwargs)
        return FilesystemStore(prefix_path, *args, **kwargs)

    @classmethod
    def matches(cls, path: str) -> bool:
        """Returns true if this kind of store is the one for the path."""
        return True

    @staticmethod
    def join(*parts: str) -> str:
        """Returns a path below a path."""
        return "/".join((parts[0].rstrip("/"), *parts[1:]))

    # -- files ---------------------------------------------------------------------------------------------

    def filesystem(self, path: str | None = None) -> tuple[Any, str]:
        """Returns the file system of fsspec for a path of this store, and the path in its form."""
        import fsspec

        found: tuple[Any, str] = fsspec.core.url_to_fs(
            self.file_path(path or self.prefix_path), **self._storage_options
        )
        return found

    def file_path(self, path: str) -> str:
        """Returns a path of this store in the form of fsspec."""
        return path

    def spark_path(self, path: str) -> str:
        """Returns a path of this store in the form of Spark."""
        return path if "://" in path else f"file://{path}"

    def exists(self, path: str) -> bool:
        """Returns true if there is a file or a folder."""
        filesystem, own = self.filesystem(path)
        return bool(filesystem.exists(own))

    def read(self, path: str) -> bytes:
        """Returns the bytes of a file."""
        filesystem, own = self.filesystem(path)
        data: bytes = filesystem.cat_file(own)
        return data

    def write(self, path: str, data: bytes) -> None:
        """Writes a file whole: readers find the old one or the new one."""
        filesystem, own = self.filesystem(path)
        filesystem.makedirs(own.rpartition("/")[0], exist_ok=True)
        part = f"{own}.{uuid.uuid4().hex}"
        filesystem.pipe_file(part, data)
        try:
            filesystem.mv(part, own)
        except OSError:  # HDFS does not replace a file
            filesystem.rm_file(own)
            filesystem.mv(part, own)

    def write_text(self, path: str, text: str) -> None:
        """Writes a file whole."""
        self.write(path, text.encode())

    def delete(self, path: str) -> None:
        """Removes a file or a folder, if it is there."""
        filesystem, own = self.filesystem(path)
        with contextlib.suppress(FileNotFoundError):
            filesystem.rm(own, recursive=True)

    def check_writable(self) -> None:
        """Writes a small file and removes it.

        Raises:
            OSError: that is not possible; the text names the store.
        """
        probe = self.join(self.prefix_path, f".horovod-{uuid.uuid4().hex}")
        try:
            self.write(probe, b"")
            self.delete(probe)
        except Exception as error:
            raise OSError(f"the store {self.prefix_path} can't be written: {error}") from error

    # -- data ----------------------------------------------------------------------------------------------

    def is_parquet_dataset(self, path: str) -> bool:
        """Returns true if the folder has Parquet files."""
        try:
            return bool(self.get_parquet_dataset(path).files)
        except (OSError, ValueError):
            return False

    def get_parquet_dataset(self, path: str) -> Any:
        """Returns the ``pyarrow.dataset.Dataset`` of a folder."""
        from pyarrow import dataset

        filesystem, own = self.filesystem(path)
        return dataset.dataset(own, filesystem=filesystem, format="parquet")

    def get_data_path(self, kind: str, idx: Any = None) -> str:
        """Returns the folder of ``train``, ``val`` or ``test`` data; ``idx`` distinguishes trainings."""
        return self._paths[kind] if idx is None else f"{self._paths[kind]}.{idx}"

    def get_train_data_path(self, idx: Any = None) -> str:
        """Returns the folder of the training data."""
        return self.get_data_path("train", idx)

    def get_val_data_path(self, idx: Any = None) -> str:
        """Returns the folder of the validation data."""
        return self.get_data_path("val", idx)

    def get_test_data_path(self, idx: Any = None) -> str:
        """Returns the folder of the test data."""
        return self.get_data_path("test", idx)

    def get_data_metadata_path(self) -> str:
        """Returns the file for what is known of the data."""
        return self.join(self.prefix_path, "_metadata")

    # -- runs ----------------------------------------------------------------------------------------------

    def saving_runs(self) -> bool:
        """Returns true if checkpoints and logs are kept."""
        return self._save_runs

    def get_runs_path(self) -> str:
        """Returns the folder of all runs."""
        return self._runs_path

    def get_run_path(self, run_id: str) -> str:
        """Returns the folder of a run."""
        return self.join(self._runs_path, run_id)

    def get_checkpoint_path(self, run_id: str) -> str:
        """Returns the file of a run's checkpoint."""
        return self.join(self.get_run_path(run_id), self._checkpoint_filename)

    def get_checkpoints(self, run_id: str, suffix: str = ".ckpt") -> list[str]:
        """Returns the files of a run that end so."""
        filesystem, own = self.filesystem(self.get_run_path(run_id))
        return sorted(path for path in filesystem.find(own) if path.endswith(suffix))

    def get_logs_path(self, run_id: str) -> str:
        """Returns the folder of a run's logs."""
        return self.join(self.get_run_path(run_id), LOGS)

    def get_checkpoint_filename(self) -> str:
        """Returns the name of a checkpoint."""
        return self._checkpoint_filename

    def get_logs_subdir(self) -> str:
        """Returns the name of the folder of logs."""
        return LOGS

    def get_local_output_dir_fn(self, run_id: str) -> Callable[[], AbstractContextManager[str]]:
        """Returns what makes a folder of this host for a run, which is removed at the end."""

        @contextlib.contextmanager
        def local() -> Iterator[str]:
            with tempfile.TemporaryDirectory(prefix=f"horovod-{run_id}-") as folder:
                yield folder

        return local

    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        """Returns what copies a folder of this host into that of a run."""

        def sync(folder: str) -> None:
            filesystem, own = self.filesystem(self.get_run_path(run_id))
            filesystem.makedirs(own, exist_ok=True)
            filesystem.put(f"{folder.rstrip('/')}/", f"{own}/", recursive=True)

        return sync

    def to_remote(self, run_id: str, dataset_idx: Any = None) -> SimpleNamespace:
        """Returns what a rank needs of this store."""
        return SimpleNamespace(
            train_data_path=self.get_train_data_path(dataset_idx),
            val_data_path=self.get_val_data_path(dataset_idx),
            test_data_path=self.get_test_data_path(dataset_idx),
            saving_runs=self.saving_runs(),
            runs_path=self.get_runs_path(),
            run_path=self.get_run_path(run_id),
            checkpoint_path=self.get_checkpoint_path(run_id),
            logs_path=self.get_logs_path(run_id),
            checkpoint_filename=self.get_checkpoint_filename(),
            logs_subdir=self.get_logs_subdir(),
            get_local_output_dir=self.get_local_output_dir_fn(run_id),
            sync=self.sync_fn(run_id),
        )


class FilesystemStore(Store):
    """A store on any file system that fsspec supports."""


class LocalStore(FilesystemStore):
    """A store in a folder of this host, or of a file system that all hosts share."""


class HDFSStore(Store):
    """A store on HDFS, through pyarrow, which needs Hadoop's libraries (``CLASSPATH``, ``HADOOP_HOME``).

    Args:
        prefix_path: ``hdfs://host:port/folder``, ``hdfs:///folder`` or ``/folder``.
        host: the name node; None: that of the path, or of Hadoop's configuration.
        port: its port.
        user: whose files they are; None: the user's.
        kerb_ticket: the path of a Kerberos ticket.
        driver: only ``libhdfs``.
        extra_conf: settings of Hadoop.
    """

    def __init__(
        self,
        prefix_path: str,
        host: str | None = None,
        port: int | None = None,
        user: str | None = None,
        kerb_ticket: str | None = None,
        driver: str = "libhdfs",
        extra_conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        if driver != "libhdfs":
            raise ValueError(f"HDFSStore: driver='{driver}' is not known, only libhdfs")
        options = {"user": user, "kerb_ticket": kerb_ticket, "extra_conf": extra_conf}
        given = {name: value for name, value in options.items() if value is not None}
        where, _, path = prefix_path.removeprefix("hdfs://").partition("/")
        if host:
            where = host if port is None else f"{host}:{port}"
        super().__init__(f"hdfs://{where}/{path}", storage_options=given, **kwargs)

    @classmethod
    def matches(cls, path: str) -> bool:
        """Returns true for URLs of HDFS."""
        return path.startswith("hdfs://")


class DBFSLocalStore(Store):
    """A store on Databricks' file system: ``dbfs:/folder`` or ``/dbfs/folder``."""

    @classmethod
    def matches(cls, path: str) -> bool:
        """Returns true for both forms of a path of DBFS."""
        return path.startswith(("dbfs:/", "/dbfs/"))

    def file_path(self, path: str) -> str:
        """Returns the path under /dbfs."""
        return "/dbfs/" + path.removeprefix("dbfs:").lstrip("/").removeprefix("dbfs/")

    def spark_path(self, path: str) -> str:
        """Returns the path as ``dbfs:/folder``."""
        return "dbfs:" + self.file_path(path).removeprefix("/dbfs")
