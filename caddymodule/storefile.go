package caddymodule

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/certmagic"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
)

func init() { caddy.RegisterModule(new(FileStore)) }

// fileStores keeps the files open over reloads, by their path: each can be open
// once.
var fileStores = caddy.NewUsagePool()

// FileStore keeps what must outlive a restart (sessions, refresh tokens, revocations, what
// else the app counts or remembers for long) in one file, which one process uses
// at a time. It is written when it is first needed, not when a configuration is
// validated.
type FileStore struct {
	// The file. Its folder is made where it is missing. Placeholders are
	// supported. Default: `fhir/<issuer's host>.db` in the folder of Caddy's
	// storage, or, where that is no folder, in Caddy's data folder.
	Path string `json:"path,omitempty"`

	// How many entries it holds at most; what comes beyond is refused. A person
	// takes one for each session, each app in it, and each app that has a refresh token,
	// some 700 bytes. Default:
	// 1000000.
	MaxEntries int `json:"max_entries,omitempty"`

	// How long a start waits for another process to let the file go, as the one
	// before does when its requests have ended, at the latest after Caddy's
	// `grace_period`. Default: `30s`.
	LockTimeout caddy.Duration `json:"lock_timeout,omitempty"`

	store.Store `json:"-"`
	pooled      *boltstore.Store
	key         string // in the pool
}

type pooledFile struct{ *boltstore.Store }

// Destruct implements caddy.Destructor.
func (f pooledFile) Destruct() error { return f.Close() }

// CaddyModule returns the Caddy module information.
func (*FileStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.stores.file", New: func() caddy.Module { return new(FileStore) }}
}

// use takes the file over from the configuration before, if that had it. The
// default path is the app's to know, so this is not done in Provision.
func (f *FileStore) use(defaultPath string) error {
	path, err := resolveSecret("path of the durable store", f.Path)
	if err != nil {
		return err
	}
	if path == "" {
		path = defaultPath
	}
	if path, err = filepath.Abs(path); err != nil {
		return fmt.Errorf("path of the durable store: %w", err)
	}
	pooled, _, err := fileStores.LoadOrNew(path, func() (caddy.Destructor, error) {
		return pooledFile{boltstore.New(path, f.MaxEntries)}, nil
	})
	if err != nil {
		return err
	}
	f.key, f.pooled = path, pooled.(pooledFile).Store
	f.Store = f.pooled
	return nil
}

// lockNotice is how long a start waits for the file before it says so.
const lockNotice = time.Second

// start opens the file, so that one that cannot be had is an error of the
// configuration and not of the first person who signs in; and sets the bounds.
func (f *FileStore) start(logger *slog.Logger) error {
	f.pooled.SetLogger(logger)
	f.pooled.SetMaxEntries(f.MaxEntries)
	f.pooled.SetLockTimeout(time.Duration(f.LockTimeout))
	notice := time.AfterFunc(lockNotice, func() {
		logger.Info("waiting for the durable store, which another process may still hold", "path", f.key)
	})
	defer notice.Stop()
	return f.pooled.Open()
}

// Cleanup lets the file go, if use got as far as taking it.
func (f *FileStore) Cleanup() error {
	if f.Store == nil {
		return nil
	}
	_, err := fileStores.Delete(f.key)
	return err
}

// defaultStorePath is where an issuer's durable store is.
func defaultStorePath(storage certmagic.Storage, issuer string) string {
	folder := caddy.AppDataDir()
	if files, ok := storage.(*certmagic.FileStorage); ok {
		folder = files.Path
	}
	return filepath.Join(folder, "fhir", storageName(issuer)+".db")
}

// UnmarshalCaddyfile sets up the store from Caddyfile tokens. Syntax:
//
//	durable_store file {
//		path <file>
//		max_entries <number>
//		lock_timeout <duration>
//	}
func (f *FileStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return parseDirective(d, subdirectives{
		"path": word(&f.Path, nil), "max_entries": number(&f.MaxEntries), "lock_timeout": duration(&f.LockTimeout),
	})
}

var (
	_ store.Store           = (*FileStore)(nil)
	_ caddy.CleanerUpper    = (*FileStore)(nil)
	_ caddyfile.Unmarshaler = (*FileStore)(nil)
)
