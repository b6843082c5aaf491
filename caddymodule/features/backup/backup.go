package backup

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
)

// backup is the response to GET /fhir/backup: a tar archive of the state needed to restore a gateway, with paths relative to
// the folder of Caddy's storage. The store comes first, so that the keys, which are written after it, can decrypt all its
// content.
type backup struct {
	ctx       context.Context
	fileStore fileBackuper      // nil if the durable store is not a file
	storage   certmagic.Storage // storage of keys and clients; nil if they are in the durable store
	issuer    string
}

// fileBackuper is a store in a single file.
type fileBackuper interface {
	// Backup writes a consistent snapshot of the store.
	Backup(writeHeader func(size int64, copyTo func(io.Writer) error) error) error
}

var errSharedStore = errors.New("nothing to back up: all state is in a shared store; back up that store instead (docs/operate/replicas.md)")

func init() {
	fhirapp.RegisterAdminRoutes(func(a *fhirapp.AdminAPI) []caddy.AdminRoute {
		return []caddy.AdminRoute{{Pattern: "/fhir/backup", Handler: fhirapp.AdminMethods{
			http.MethodGet: func(r *http.Request) (any, error) { return newBackup(r, a.RunningContext()) },
		}}}
	})
}

// newBackup returns the backup of the running app.
func newBackup(r *http.Request, running caddy.Context) (any, error) {
	app, err := fhirbase.FindAppOrNil[*fhirapp.App](running)
	switch {
	case err != nil:
		return nil, caddy.APIError{HTTPStatus: http.StatusInternalServerError, Err: err}
	case app == nil:
		return nil, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fhirbase.ErrNoApp}
	}
	b := backup{ctx: r.Context(), issuer: app.Issuer}
	b.fileStore, _ = app.Stores().Durable.(fileBackuper)
	if len(app.StoreKeys) == 0 {
		b.storage = running.Storage()
	}
	if b.fileStore == nil && b.storage == nil {
		return nil, caddy.APIError{HTTPStatus: http.StatusConflict, Err: errSharedStore}
	}
	return b, nil
}

// ServeHTTP writes the archive. After an error, it aborts the connection, so that clients detect a truncated archive.
func (b backup) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-tar")
	if err := b.writeArchive(tar.NewWriter(w)); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (b backup) writeArchive(to *tar.Writer) error {
	if b.fileStore != nil {
		if err := b.fileStore.Backup(func(size int64, copyTo func(io.Writer) error) error {
			if err := b.writeHeader(to, "fhir/"+fhirbase.StorageName(b.issuer)+".db", size); err != nil {
				return err
			}
			return copyTo(to)
		}); err != nil {
			return err
		}
	}
	names, err := b.storageKeys()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := b.addStorageValue(to, name); err != nil {
			return err
		}
	}
	return to.Close()
}

// storageKeys returns the keys in Caddy's storage under which signing keys and registered clients are stored.
func (b backup) storageKeys() ([]string, error) {
	if b.storage == nil {
		return nil, nil
	}
	names := keyring.StorageNames(fhirapp.KeysStorageName(b.issuer))
	clients, err := b.storage.List(b.ctx, "fhir/clients/"+fhirbase.StorageName(b.issuer), true)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing registered clients: %w", err)
	}
	return append(names, clients...), nil
}

// addStorageValue adds a value of Caddy's storage to the archive, if it exists.
func (b backup) addStorageValue(to *tar.Writer, name string) error {
	value, err := b.storage.Load(b.ctx, name)
	info, statErr := b.storage.Stat(b.ctx, name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || statErr == nil && !info.IsTerminal:
		return nil
	case err != nil:
		return err
	}
	if err := b.writeHeader(to, strings.TrimPrefix(name, "/"), int64(len(value))); err != nil {
		return err
	}
	_, err = to.Write(value)
	return err
}

func (backup) writeHeader(to *tar.Writer, name string, size int64) error {
	return to.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o600, ModTime: time.Now(), Format: tar.FormatPAX})
}
