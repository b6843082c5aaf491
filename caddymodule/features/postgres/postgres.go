// Package postgres is the module fhir.stores.postgres: state that several gateways share, in PostgreSQL.
package postgres

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/postgres/postgresstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

func init() { caddy.RegisterModule(new(Store)) }

// Store keeps state in one table of a PostgreSQL database (13 or newer), which several gateways share. The table is
// made at the first start.
type Store struct {
	// A connection string or URL as PostgreSQL's own clients take it, such as
	// `postgres://fhir:{env.PGPASSWORD}@db.example/fhir?sslmode=verify-full`. Of several hosts, the one that takes changes is
	// used. Placeholders are supported, and what they hold is escaped. `pool_max_conns` is the maximum number of connections
	// besides the one that waits for notifications, 10 by default. Required.
	DSN string `json:"dsn,omitempty"`

	// With one of these, the server's certificate is verified, regardless of `sslmode` in `dsn`.
	option.TLS

	// The host, or host:port, for the one connection that waits for notifications, where the others go through a pooler
	// that shares connections between transactions, such as PgBouncer. Default: as for the others.
	ListenAddress string `json:"listen_address,omitempty"`

	// The table; with its schema and a dot before it, if the search path does not lead there. Default: `fhir_store`.
	Table string `json:"table,omitempty"`

	// The maximum number of entries, counted from time to time; more are refused. Default: 50000000.
	MaxEntries int `json:"max_entries,omitempty"`

	// When a change counts as made: `remote_apply`, `on`, `remote_write`, `local` or `off`, as PostgreSQL's setting of
	// this name. Default: `on`, whatever the server's is.
	SynchronousCommit string `json:"synchronous_commit,omitempty"`

	stores.Shared
}

var errNoDSN = errors.New("postgres needs a dsn")

// CaddyModule returns the Caddy module information.
func (*Store) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.stores.postgres", New: func() caddy.Module { return new(Store) }}
}

// Provision takes the store over from the previous configuration, if it has the same settings.
func (p *Store) Provision(caddy.Context) error {
	config, err := p.resolved()
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	authorities, err := p.TLS.Authorities()
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if config.TLS, err = p.TLS.Config(authorities); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	settings := config
	settings.TLS = nil
	key := sha256.Sum256(fmt.Appendf(nil, "%#v %#v %s", settings, p.TLS, authorities))
	return p.Use("postgres", fmt.Sprintf("%x", key), func(logger *slog.Logger) (*stores.Remote, error) {
		config.Logger = logger
		s, err := postgresstore.New(config)
		if err != nil {
			return nil, fmt.Errorf("postgres: %w", err)
		}
		return &stores.Remote{Shared: s, Check: s.Open, Close: s.Close, Volatile: s.Volatile, Own: "for PostgreSQL table, or another database", Connections: s.Stat}, nil
	})
}

// resolved is the configuration with its placeholders replaced, but for TLS and the logger.
func (p *Store) resolved() (c postgresstore.Config, err error) {
	if p.DSN == "" {
		return c, errNoDSN
	}
	c = postgresstore.Config{
		ListenAddress: p.ListenAddress, Table: p.Table,
		MaxEntries: p.MaxEntries, SynchronousCommit: p.SynchronousCommit,
		Followed: stores.MirroredKinds(), Announced: store.CachedKinds, Unbounded: store.UnboundedKinds,
	}
	c.DSN, err = option.ResolveConnection("dsn", p.DSN)
	return c, err
}

// UnmarshalCaddyfile sets up the store from Caddyfile tokens. Syntax:
//
//	store postgres {
//		dsn <connection string>
//		tls_ca <file>
//		tls_client <certificate> <key>
//		listen_address <host>[:<port>]
//		table <name>
//		max_entries <number>
//		synchronous_commit remote_apply|on|remote_write|local|off
//	}
func (p *Store) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	fields := option.Block{
		"dsn":                option.Word(&p.DSN, option.CheckPlaceholders),
		"listen_address":     option.Word(&p.ListenAddress, nil),
		"table":              option.Word(&p.Table, postgresstore.CheckTable),
		"max_entries":        option.Number(&p.MaxEntries),
		"synchronous_commit": option.Word(&p.SynchronousCommit, postgresstore.CheckSynchronousCommit),
	}
	maps.Copy(fields, p.TLS.Subdirectives())
	if err := option.ParseDirective(d, fields); err != nil {
		return err
	}
	if p.DSN == "" {
		return d.WrapErr(errNoDSN)
	}
	return nil
}

var (
	_ caddy.Provisioner     = (*Store)(nil)
	_ caddy.CleanerUpper    = (*Store)(nil)
	_ caddyfile.Unmarshaler = (*Store)(nil)
)
