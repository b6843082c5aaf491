// Package postgres is the module fhir.stores.postgres: state that several gateways share, in PostgreSQL.
package postgres

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/postgres/postgresstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

func init() { caddy.RegisterModule(new(Store)) }

// Store keeps state in one table of a PostgreSQL database (13 or newer), which several gateways share. The table is
// made at the first start. Where it is, either `dsn` says or `host` and the options beside it.
type Store struct {
	// A connection string or URL as PostgreSQL's own clients take it, such as
	// `postgres://fhir@db.example/fhir?sslmode=verify-full`. Placeholders are supported. Required without `host`.
	DSN string `json:"dsn,omitempty"`

	// The hosts, or the folder of a socket. Of several hosts, the one that takes changes is used. Placeholders are
	// supported. Required without `dsn`.
	Hosts []string `json:"hosts,omitempty"`

	// The port at all hosts. Default: 5432.
	Port int `json:"port,omitempty"`

	// The role to sign in as. Placeholders are supported. Default: the name of the system's user.
	User string `json:"user,omitempty"`

	// Its password. Placeholders are supported. Default: none.
	Password string `json:"password,omitempty"`

	// The database. Placeholders are supported. Default: the name of the role.
	Database string `json:"database,omitempty"`

	// How the server and this process authenticate to each other. Default: with `dsn`, what it says; else TLS if the
	// server offers it, whatever its certificate.
	TLS *stores.TLS `json:"tls,omitempty"`

	// The host, or host:port, for the one connection that waits for notifications, where the others go through a pooler
	// that shares connections between transactions, such as PgBouncer. Default: as for the others.
	ListenAddress string `json:"listen_address,omitempty"`

	// The maximum number of connections, besides the one that waits for notifications. Default: 10.
	PoolSize int `json:"pool_size,omitempty"`

	// The table; with its schema and a dot before it, if the search path does not lead there. Default: `fhir_store`.
	Table string `json:"table,omitempty"`

	// The maximum number of entries, counted from time to time; more are refused. Default: 50000000.
	MaxEntries int `json:"max_entries,omitempty"`

	// When a change counts as made: `remote_apply`, `on`, `remote_write`, `local` or `off`, as PostgreSQL's setting of
	// this name. Default: `on`, whatever the server's is.
	SynchronousCommit string `json:"synchronous_commit,omitempty"`

	stores.Shared
}

var (
	errPostgresTwice   = errors.New("dsn says all that host, port, user, password and database say: use one or the other")
	errPostgresNowhere = errors.New("postgres needs a dsn or a host")
	errPostgresPort    = errors.New("host takes no port: write it with the option port, or use a dsn")
)

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
	key := sha256.Sum256(fmt.Appendf(nil, "%#v %#v %s", settings, p.TLS.OrNone(), authorities))
	return p.Use("postgres", fmt.Sprintf("%x", key), func(logger *slog.Logger) (*stores.Remote, error) {
		config.Logger = logger
		s, err := postgresstore.New(config)
		if err != nil {
			return nil, fmt.Errorf("postgres: %w", err)
		}
		return &stores.Remote{Shared: s, Check: s.Open, Close: s.Close, Volatile: s.Volatile, Own: "for PostgreSQL table, or another database", Connections: s.Stat}, nil
	})
}

// check checks the options against each other.
func (p *Store) check() error {
	fields := len(p.Hosts) > 0 || p.Port != 0 || p.User != "" || p.Password != "" || p.Database != ""
	switch {
	case p.DSN != "" && fields:
		return errPostgresTwice
	case p.DSN == "" && len(p.Hosts) == 0:
		return errPostgresNowhere
	}
	for _, host := range p.Hosts {
		_, port, _ := net.SplitHostPort(host)
		if _, err := strconv.Atoi(port); err == nil && !strings.HasPrefix(host, "/") {
			return errPostgresPort
		}
	}
	return nil
}

// resolved is the configuration with its placeholders replaced, but for TLS and the logger.
func (p *Store) resolved() (c postgresstore.Config, err error) {
	if err := p.check(); err != nil {
		return c, err
	}
	c = postgresstore.Config{
		ListenAddress: p.ListenAddress, PoolSize: p.PoolSize, Table: p.Table,
		MaxEntries: p.MaxEntries, SynchronousCommit: p.SynchronousCommit,
		Followed: stores.MirroredKinds(), Announced: store.CachedKinds, Unbounded: store.UnboundedKinds,
	}
	if p.DSN != "" {
		c.DSN, err = option.ResolveSecret("dsn", p.DSN)
		return c, err
	}
	c.DSN, err = p.connectionString()
	return c, err
}

// connectionString is one of the options beside dsn.
func (p *Store) connectionString() (string, error) {
	var settings []string
	for _, setting := range []struct{ option, keyword, value string }{
		{"host", "host", strings.Join(p.Hosts, ",")}, {"user", "user", p.User}, {"password", "password", p.Password},
		{"database", "dbname", p.Database},
	} {
		value, err := option.ResolveSecret(setting.option, setting.value)
		if err != nil {
			return "", err
		}
		if value != "" {
			settings = append(settings, setting.keyword+"='"+quotedSetting.Replace(value)+"'")
		}
	}
	if p.Port != 0 {
		settings = append(settings, "port="+strconv.Itoa(p.Port))
	}
	return strings.Join(settings, " "), nil
}

// quotedSetting escapes a value between single quotes in a connection string.
var quotedSetting = strings.NewReplacer(`\`, `\\`, `'`, `\'`)

// UnmarshalCaddyfile sets up the store from Caddyfile tokens. Syntax:
//
//	store postgres {
//		dsn <connection string>
//		host <host>...
//		port <number>
//		user <name>
//		password <password>
//		database <name>
//		tls {
//			ca <file>
//			certificate <file>
//			key <file>
//			server_name <name>
//		}
//		listen_address <host>[:<port>]
//		pool_size <number>
//		table <name>
//		max_entries <number>
//		synchronous_commit remote_apply|on|remote_write|local|off
//	}
func (p *Store) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	placeholders := option.Literal(func(string) error { return nil })
	err := option.ParseDirective(d, option.Block{
		"dsn":                option.Word(&p.DSN, placeholders),
		"host":               option.Words(&p.Hosts, placeholders),
		"port":               option.Number(&p.Port),
		"user":               option.Word(&p.User, placeholders),
		"password":           option.Word(&p.Password, placeholders),
		"database":           option.Word(&p.Database, placeholders),
		"tls":                stores.ParseTLS(&p.TLS),
		"listen_address":     option.Word(&p.ListenAddress, nil),
		"pool_size":          option.Number(&p.PoolSize),
		"table":              option.Word(&p.Table, postgresstore.CheckTable),
		"max_entries":        option.Number(&p.MaxEntries),
		"synchronous_commit": option.Word(&p.SynchronousCommit, postgresstore.CheckSynchronousCommit),
	})
	if err != nil {
		return err
	}
	return option.WithLine(d, p.check())
}

var (
	_ caddy.Provisioner     = (*Store)(nil)
	_ caddy.CleanerUpper    = (*Store)(nil)
	_ caddyfile.Unmarshaler = (*Store)(nil)
)
