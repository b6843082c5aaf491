package postgresstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Defaults of a [Config].
const (
	defaultMaxConns          = 10
	defaultTimeout           = 2 * time.Second
	defaultTable             = "fhir_store"
	defaultMaxEntries        = 50_000_000
	defaultSynchronousCommit = "on"
)

// synchronousCommits are the values of [Config.SynchronousCommit], from the most to the
// least durable.
var synchronousCommits = []string{"remote_apply", "on", "remote_write", "local", "off"}

// A Config is the configuration of a [Store].
type Config struct {
	// Connection string or URL in libpq's format. Its pool_max_conns is the maximum number of connections, not including the
	// connection that listens for notifications; its default is 10. Required.
	DSN string

	// Host, or host:port, of the connection that listens for notifications, if the other connections use a transaction pooler.
	// Default: the host in DSN.
	ListenAddress string

	// TLS configuration, which replaces the TLS settings of DSN. Default: the settings of DSN.
	TLS *tls.Config

	// Time limit of a step with all its retries, and of each page of a listing. Default: 2 s.
	Timeout time.Duration

	// Table name, with the prefix "schema." if the schema is not in the search path. Default: fhir_store.
	Table string

	// Maximum number of entries, which are counted periodically. Additional entries are rejected. Default: 50 million.
	MaxEntries int

	// Durability of a commit: remote_apply, on, remote_write, local or off. Default: on.
	SynchronousCommit string

	// Kinds of keys that [Store.Subscribe] reports.
	SubscribedKinds []string

	// Kinds of keys that [Store.Subscribe] reports only when they change. There may be millions of such rows, too many to
	// report initially.
	ChangeOnlyKinds []string

	// Kinds of keys that are stored even beyond MaxEntries.
	UnboundedKinds []string

	// Logger for background errors. Default: slog.Default.
	Logger *slog.Logger
}

var errNoDSN = errors.New("the connection string is missing")

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(max(c.Timeout, 0), defaultTimeout)
	c.Table = cmp.Or(c.Table, defaultTable)
	c.MaxEntries = cmp.Or(max(c.MaxEntries, 0), defaultMaxEntries)
	c.SynchronousCommit = cmp.Or(c.SynchronousCommit, defaultSynchronousCommit)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (c Config) check() error {
	if c.DSN == "" {
		return errNoDSN
	}
	return cmp.Or(CheckTable(c.Table), CheckSynchronousCommit(c.SynchronousCommit))
}

// isAnnounced reports whether [Store.Subscribe] reports changes of a key.
func (c Config) isAnnounced(key string) bool {
	kind := store.KindOf(key)
	return kind == probeKind || slices.Contains(c.SubscribedKinds, kind) || slices.Contains(c.ChangeOnlyKinds, kind)
}

// tableName matches valid table names. It limits their length because names of procedures and indexes contain the name of the
// table and are limited to 63 bytes.
var tableName = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,39}\.)?[a-z_][a-z0-9_]{0,39}$`)

// CheckTable returns an error if name is not a valid table name.
func CheckTable(name string) error {
	if !tableName.MatchString(name) {
		return fmt.Errorf("invalid table %q: use up to 40 lower-case letters, digits and underscores, optionally with a schema and a dot before the name", name)
	}
	return nil
}

// CheckSynchronousCommit returns an error unless word is one of remote_apply, on, remote_write, local and off.
func CheckSynchronousCommit(word string) error {
	if !slices.Contains(synchronousCommits, word) {
		return fmt.Errorf("invalid synchronous_commit %q: use one of %s", word, strings.Join(synchronousCommits, ", "))
	}
	return nil
}

func (c Config) poolConfig() (*pgxpool.Config, error) {
	pool, err := pgxpool.ParseConfig(c.DSN)
	if err != nil {
		return nil, redactedError(err)
	}
	if err := checkNames(&pool.ConnConfig.Config); err != nil {
		return nil, err
	}
	if pool.MinConns = 0; !strings.Contains(c.DSN, "pool_max_conns") {
		pool.MaxConns = defaultMaxConns
	}
	pool.ShouldPing = skipPing // a ping costs a round trip; withConn retries after a lost connection
	conn := &pool.ConnConfig.Config
	conn.ConnectTimeout = c.Timeout
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = "caddy-fhir"
	}
	if c.TLS != nil {
		requireTLS(conn, c.TLS)
	}
	if conn.ValidateConnect == nil && hasMultipleHosts(conn) {
		conn.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	return pool, nil
}

func skipPing(_ context.Context, _ pgxpool.ShouldPingParams) bool { return false }

// listenConfig returns the configuration of the connection that listens for notifications.
func (c Config) listenConfig() (*pgx.ConnConfig, error) {
	pool, err := c.poolConfig()
	if err != nil {
		return nil, err
	}
	conn := pool.ConnConfig
	if c.ListenAddress == "" {
		return conn, nil
	}
	if isURL(c.ListenAddress) {
		return nil, errListenURL
	}
	host, port, err := net.SplitHostPort(c.ListenAddress)
	if err != nil {
		host, port = c.ListenAddress, strconv.Itoa(int(conn.Port))
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("invalid listen address %q: use a host or host:port", c.ListenAddress)
	}
	tlsConfig := conn.TLSConfig
	conn.Host, conn.Port, conn.Fallbacks, conn.ValidateConnect = host, uint16(number), nil, nil
	switch {
	case c.TLS != nil:
		requireTLS(&conn.Config, c.TLS)
	case tlsConfig != nil && tlsConfig.ServerName != "":
		conn.TLSConfig = tlsConfig.Clone()
		conn.TLSConfig.ServerName = host
	}
	return conn, nil
}

// requireTLS requires TLS for all connections except those to Unix sockets.
func requireTLS(conn *pgconn.Config, config *tls.Config) {
	all := append([]*pgconn.FallbackConfig{{Host: conn.Host, Port: conn.Port}}, conn.Fallbacks...)
	var secured []*pgconn.FallbackConfig
	for _, f := range all {
		sameAddress := func(k *pgconn.FallbackConfig) bool { return k.Host == f.Host && k.Port == f.Port }
		if slices.ContainsFunc(secured, sameAddress) {
			continue // same host with another TLS mode
		}
		f = &pgconn.FallbackConfig{Host: f.Host, Port: f.Port}
		if !strings.HasPrefix(f.Host, "/") && !strings.HasPrefix(f.Host, "@") {
			f.TLSConfig = config.Clone()
			f.TLSConfig.ServerName = f.Host
		}
		secured = append(secured, f)
	}
	conn.TLSConfig, conn.Fallbacks = secured[0].TLSConfig, secured[1:]
}

func hasMultipleHosts(conn *pgconn.Config) bool {
	return slices.ContainsFunc(conn.Fallbacks, func(f *pgconn.FallbackConfig) bool {
		return f.Host != conn.Host || f.Port != conn.Port
	})
}

// Errors about connection strings and addresses never quote the input: if it is malformed, any part may be a password.
var (
	errURLAsName = errors.New("a host, user or database contains part of a URL: set dsn to the complete URL, and percent-encode its user and password: %40 for @, %2F for /, %3F for ? and %23 for #")
	errListenURL = errors.New("invalid listen address: use a host or host:port, not a URL")
)

// parseErrors maps prefixes of pgx's errors about connection strings to error messages. The prefixes contain no input.
var parseErrors = []struct{ prefix, message string }{
	{"failed to parse as URL", "not a valid URL; percent-encode the user and password: %40 for @, %2F for /, %3F for ? and %23 for #"},
	{"failed to parse as keyword/value", "neither a URL nor keyword=value pairs; put values with spaces in single quotes, and escape ' and \\ with \\"},
	{"invalid port", "the port is not a number from 1 to 65535; in a URL, percent-encode the user and password: %40 for @, %2F for /, %3F for ? and %23 for #"},
	{"invalid connect_timeout", "connect_timeout is not a number of seconds"},
	{"failed to configure TLS", "invalid TLS parameters or unreadable files (sslmode, sslrootcert, sslcert, sslkey)"},
	{"could not match", "the number of ports differs from the number of hosts"},
	{"unknown target_session_attrs", "unknown target_session_attrs"},
	{"failed to read service", "the service is not in the service file, or the file cannot be read"},
	{"cannot parse pool_", "a pool_ parameter has an invalid value"},
}

// redactedError replaces an error of pgx by one without its text. pgx redacts only passwords that it recognizes.
func redactedError(err error) error {
	if parseErr, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		parseErr.ConnString = ""
		for _, known := range parseErrors {
			if strings.HasPrefix(parseErr.Error(), "cannot parse ``: "+known.prefix) {
				return errors.New(known.message)
			}
		}
	}
	return errors.New("invalid: use a URL, or keyword=value pairs in libpq's format")
}

// checkNames rejects names that contain parts of a misparsed URL, because errors and logs include the names.
func checkNames(c *pgconn.Config) error {
	hosts := []string{c.Host}
	for _, f := range c.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	malformed := slices.ContainsFunc(hosts, isURL) || isURL(c.Database) || strings.Contains(c.User, "://")
	for name := range c.RuntimeParams {
		malformed = malformed || strings.ContainsAny(name, "@/:")
	}
	if malformed {
		return errURLAsName
	}
	return nil
}

// isURL reports whether a name is a URL or a part of one. A name that begins with @ is an abstract socket.
func isURL(name string) bool {
	return strings.Contains(name, "://") || strings.LastIndexByte(name, '@') > 0
}
