// Package redis is the module fhir.stores.redis: state that several gateways share, in Redis.
package redis

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/redis/redisstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

func init() { caddy.RegisterModule(new(Store)) }

// Store keeps all state in Redis 6.2 or newer, or in Valkey, which several gateways share. As the store, it is the
// durable store too. The server must keep its data (`appendonly yes`) and drop none of it when its memory is full
// (`maxmemory-policy noeviction`). Validating a configuration does not connect to it.
type Store struct {
	// The server, `host:port` or the path of a Unix socket. Placeholders are supported. Default: `localhost:6379`.
	Address string `json:"address,omitempty"`

	// The user (Redis ACL). Placeholders are supported. Default: the server's default user.
	Username string `json:"username,omitempty"`

	// The password. Placeholders are supported. Default: none.
	Password string `json:"password,omitempty"`

	// The number of the database. A cluster has only 0. Default: 0.
	Database int `json:"database,omitempty"`

	// Connect by TLS, to the server and to Sentinels. Default: without.
	TLS *stores.TLS `json:"tls,omitempty"`

	// Sentinels that name the server, instead of the address. Default: none.
	Sentinel *Sentinel `json:"sentinel,omitempty"`

	// Nodes of a Redis cluster, `host:port`, instead of the address; it tells the others. Default: none.
	Cluster []string `json:"cluster,omitempty"`

	// What the names of all keys begin with, so that several issuers can use one server. Default: `fhir:`.
	KeyPrefix string `json:"key_prefix,omitempty"`

	// How many replicas must have a change before it counts (`WAIT`); if they have not within half a second, the
	// request is answered 503. Default: 0.
	WaitReplicas int `json:"wait_replicas,omitempty"`

	// The maximum number of keys in the database; while there are more, new entries are refused. It is checked once a second.
	// Default: as many as the server has memory for.
	MaxEntries int `json:"max_entries,omitempty"`

	stores.Shared
}

// Sentinel is how Sentinels are found.
type Sentinel struct {
	// The name by which they know the master. Required.
	Master string `json:"master,omitempty"`

	// Their addresses, `host:port`. Required.
	Nodes []string `json:"nodes,omitempty"`

	// The user at the Sentinels. Placeholders are supported. Default: their default user.
	Username string `json:"username,omitempty"`

	// The password at the Sentinels. Placeholders are supported. Default: none.
	Password string `json:"password,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*Store) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.stores.redis", New: func() caddy.Module { return new(Store) }}
}

// Provision takes over the connections of the previous configuration if all settings are the same.
func (r *Store) Provision(caddy.Context) error {
	options, key, err := r.resolved()
	if err != nil {
		return fmt.Errorf("store redis: %w", err)
	}
	return r.Use("redis", key, func(*slog.Logger) (*stores.Remote, error) { return openRedis(options), nil })
}

// resolved checks the settings, replaces placeholders, and returns what identifies the result.
func (r *Store) resolved() (options redisstore.Options, key string, err error) {
	if err := r.check(); err != nil {
		return options, "", err
	}
	if options, err = r.options(); err != nil {
		return options, "", err
	}
	authorities, err := r.TLS.Authorities()
	if err != nil {
		return options, "", err
	}
	if options.TLS, err = r.TLS.Config(authorities); err != nil {
		return options, "", err
	}
	key, err = r.settingsKey(options, authorities)
	return options, key, err
}

func openRedis(options redisstore.Options) *stores.Remote {
	s := redisstore.New(options)
	return &stores.Remote{
		Shared: s, Close: s.Close,
		Check: s.Check, Volatile: s.Volatile, TryListening: s.TryListening, Own: "for Redis key_prefix, database, or another server",
		Connections: func() (open, used int) {
			pool := s.Pool()
			return int(pool.TotalConns), int(pool.TotalConns - pool.IdleConns)
		},
	}
}

// check checks the settings against each other.
func (r *Store) check() error {
	ways := 0
	for _, set := range []bool{r.Address != "", r.Sentinel != nil, len(r.Cluster) > 0} {
		if set {
			ways++
		}
	}
	switch s := r.Sentinel; {
	case ways > 1:
		return errors.New("address, sentinel and cluster exclude each other")
	case s != nil && (s.Master == "" || len(s.Nodes) == 0):
		return errors.New("sentinel needs a master and nodes")
	case len(r.Cluster) > 0 && r.Database != 0:
		return errors.New("a cluster has no database but 0")
	}
	for _, address := range slices.Concat(r.Cluster, r.nodes()) {
		if err := checkHostPort(address); err != nil {
			return err
		}
	}
	return nil
}

func (r *Store) nodes() []string {
	if r.Sentinel == nil {
		return nil
	}
	return r.Sentinel.Nodes
}

// options resolves placeholders.
func (r *Store) options() (o redisstore.Options, err error) {
	o = redisstore.Options{
		Cluster: r.Cluster, Database: r.Database, KeyPrefix: r.KeyPrefix,
		WaitReplicas: r.WaitReplicas, MaxEntries: r.MaxEntries, Followed: stores.FollowedKinds(), Unbounded: store.UnboundedKinds,
		Address: r.Address, Username: r.Username, Password: r.Password,
	}
	if s := r.Sentinel; s != nil {
		o.Sentinel = redisstore.Sentinel{Master: s.Master, Nodes: s.Nodes, Username: s.Username, Password: s.Password}
	}
	err = option.ResolveSecrets(map[string]*string{
		"address": &o.Address, "username": &o.Username, "password": &o.Password,
		"username of sentinel": &o.Sentinel.Username, "password of sentinel": &o.Sentinel.Password,
	})
	if err != nil {
		return o, err
	}
	if o.Address != "" && !strings.HasPrefix(o.Address, "/") {
		if err := checkHostPort(o.Address); err != nil {
			return o, err
		}
	}
	return o, nil
}

// settingsKey tells configurations apart whose connections differ, without showing secrets. A certificate authority that
// was replaced in its file counts.
func (r *Store) settingsKey(o redisstore.Options, authorities []byte) (string, error) {
	text, err := json.Marshal([]any{
		r.TLS, authorities, o.Address, o.Sentinel, o.Cluster, o.Username, o.Password, o.Database, o.KeyPrefix,
		o.WaitReplicas, o.MaxEntries,
	})
	return fmt.Sprintf("%x", sha256.Sum256(text)), err
}

// errRedisURL quotes nothing, as a URL may have a password.
var errRedisURL = errors.New("an address is host:port, and no URL: what a URL says goes into the options address, username, password, database and tls")

// checkHostPort checks an address, or what placeholders leave of it.
func checkHostPort(address string) error {
	if strings.Contains(address, "@") || strings.Contains(address, "://") {
		return errRedisURL
	}
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return fmt.Errorf("%q is not host:port", address)
	}
	return nil
}

// UnmarshalCaddyfile sets up the store from Caddyfile tokens. Syntax:
//
//	store redis {
//		address <host:port>|<socket>
//		username <name>
//		password <password>
//		database <number>
//		tls {
//			ca <file>
//			certificate <file>
//			key <file>
//			server_name <name>
//		}
//		sentinel {
//			master <name>
//			nodes <host:port...>
//			username <name>
//			password <password>
//		}
//		cluster <host:port...>
//		key_prefix <text>
//		wait_replicas <number>
//		max_entries <number>
//	}
func (r *Store) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	err := option.ParseDirective(d, option.Block{
		"address":       option.Word(&r.Address, option.Literal(checkRedisAddress)),
		"username":      option.Word(&r.Username, option.CheckPlaceholders),
		"password":      option.Word(&r.Password, option.CheckPlaceholders),
		"database":      option.NumberOrNone(&r.Database),
		"tls":           stores.ParseTLS(&r.TLS),
		"sentinel":      parseRedisSentinel(&r.Sentinel),
		"cluster":       option.Words(&r.Cluster, checkHostPort),
		"key_prefix":    option.Word(&r.KeyPrefix, nil),
		"wait_replicas": option.NumberOrNone(&r.WaitReplicas),
		"max_entries":   option.Number(&r.MaxEntries),
	})
	if err != nil {
		return err
	}
	return option.WithLine(d, r.check())
}

func checkRedisAddress(address string) error {
	if strings.HasPrefix(address, "/") {
		return nil
	}
	return checkHostPort(address)
}

func parseRedisSentinel(to **Sentinel) option.Setter {
	return func(d *caddyfile.Dispenser) error {
		s := new(Sentinel)
		if *to = s; d.NextArg() {
			return d.ArgErr()
		}
		return option.Block{
			"master":   option.Word(&s.Master, nil),
			"nodes":    option.Words(&s.Nodes, checkHostPort),
			"username": option.Word(&s.Username, option.CheckPlaceholders),
			"password": option.Word(&s.Password, option.CheckPlaceholders),
		}.Parse(d)
	}
}

var (
	_ caddy.Provisioner     = (*Store)(nil)
	_ caddy.CleanerUpper    = (*Store)(nil)
	_ caddyfile.Unmarshaler = (*Store)(nil)
)
