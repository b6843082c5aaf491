// Package postgres is the module fhir.stores.postgres: a PostgreSQL store that several gateways can share.
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

// Store keeps state in one table of a PostgreSQL database (version 13 or newer), which several gateways can share. The table is
// created when the first gateway starts.
type Store struct {
	// The connection string or URL in PostgreSQL's format, such as
	// `postgres://fhir:{env.PGPASSWORD}@db.example/fhir?sslmode=verify-full`. If it contains several hosts, the primary is
	// used. Placeholders are supported; their values are escaped. `pool_max_conns` is the maximum number of connections, not
	// including the connection that listens for notifications; its default is 10. Required.
	DSN string `json:"dsn,omitempty"`

	// If any of these options is set, the server's certificate is verified, regardless of `sslmode` in `dsn`.
	option.TLS

	// The host, or host:port, of the connection that listens for notifications. Required if the other connections use a
	// transaction pooler such as PgBouncer. Default: the host in `dsn`.
	ListenAddress string `json:"listen_address,omitempty"`

	// The name of the table. If the schema is not in the search path, prefix it: `schema.table`. Default: `fhir_store`.
	Table string `json:"table,omitempty"`

	// The maximum number of entries, which are counted periodically. Additional entries are rejected. Default: 50000000.
	MaxEntries int `json:"max_entries,omitempty"`

	// The durability of a commit, as in PostgreSQL's setting `synchronous_commit`: `remote_apply`, `on`, `remote_write`,
	// `local` or `off`. Default: `on`, regardless of the server's setting.
	SynchronousCommit string `json:"synchronous_commit,omitempty"`

	stores.Shared
}

var errNoDSN = errors.New("postgres: the option dsn is required")

// CaddyModule returns the Caddy module information.
func (*Store) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.stores.postgres", New: func() caddy.Module { return new(Store) }}
}

// Provision reuses the store of the previous configuration if the settings are equal.
func (p *Store) Provision(caddy.Context) error {
	config, err := p.buildConfig()
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
	return p.Open("postgres", fmt.Sprintf("%x", key), func(logger *slog.Logger) (*stores.Remote, error) {
		config.Logger = logger
		s, err := postgresstore.New(config)
		if err != nil {
			return nil, fmt.Errorf("postgres: %w", err)
		}
		return &stores.Remote{SharedStore: s, Check: s.Open, Close: s.Close, VolatilityReason: s.VolatilityReason, SeparateStoreHint: "the option table, or a separate database", CountConnections: s.PoolStats}, nil
	})
}

// buildConfig returns the configuration with placeholders replaced, but without TLS and logger.
func (p *Store) buildConfig() (c postgresstore.Config, err error) {
	if p.DSN == "" {
		return c, errNoDSN
	}
	c = postgresstore.Config{
		ListenAddress: p.ListenAddress, Table: p.Table,
		MaxEntries: p.MaxEntries, SynchronousCommit: p.SynchronousCommit,
		SubscribedKinds: stores.MirroredKinds(), ChangeOnlyKinds: store.CachedKinds, UnboundedKinds: store.UnboundedKinds,
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
