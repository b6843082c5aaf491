// Package redis is the module fhir.stores.redis: a Redis store that several gateways can share.
package redis

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/redis/redisstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

func init() { caddy.RegisterModule(new(Store)) }

// Store keeps all state in Redis 6.2 or newer, or in Valkey, which several gateways can share. It is also the durable store.
// The server must persist its data (`appendonly yes`) and must not evict entries when memory is full (`maxmemory-policy
// noeviction`). Validating a configuration does not connect to the server.
type Store struct {
	// The address of the server and the credentials: `redis://[<user>:<password>@]<host>[:<port>][/<database>]`, `rediss://…`
	// for TLS, or `unix://[<user>:<password>@]/<socket>[?db=<database>]`. With the parameter `master_name=<name>`, the host is
	// a Sentinel through which the gateway finds the server; `addr=<host:port>` is another Sentinel, and `sentinel_username`
	// and `sentinel_password` are the credentials for Sentinels. With `cluster=true`, the host and each `addr` are nodes of a
	// cluster. Placeholders are supported; their values are escaped. Default: `redis://localhost:6379`.
	URL string `json:"url,omitempty"`

	// TLS settings for the servers, including Sentinels. Only with `rediss://`.
	option.TLS

	// The prefix of all keys. With different prefixes, several issuers can use one server. Default: `fhir:`.
	KeyPrefix string `json:"key_prefix,omitempty"`

	// The number of replicas that must confirm a change (`WAIT`). If they do not confirm it within half a second, the response
	// is 503. Default: 0.
	WaitReplicas int `json:"wait_replicas,omitempty"`

	// The maximum number of keys in the database, which are counted every second. Additional entries are rejected. Default:
	// limited only by the server's memory.
	MaxEntries int `json:"max_entries,omitempty"`

	stores.Shared
}

// CaddyModule returns the Caddy module information.
func (*Store) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.stores.redis", New: func() caddy.Module { return new(Store) }}
}

// Provision reuses the connections of the previous configuration if all settings are equal.
func (r *Store) Provision(caddy.Context) error {
	options, key, err := r.buildOptions()
	if err != nil {
		return fmt.Errorf("store redis: %w", err)
	}
	return r.Open("redis", key, func(*slog.Logger) (*stores.Remote, error) { return openStore(options), nil })
}

// buildOptions returns the options with placeholders replaced, and a key that identifies the settings.
func (r *Store) buildOptions() (options redisstore.Options, key string, err error) {
	url, err := option.ResolveConnection("url", cmp.Or(r.URL, "redis://localhost:6379"))
	if err != nil {
		return options, "", err
	}
	if options, err = parseURL(url); err != nil {
		return options, "", err
	}
	authorities, err := r.TLS.Authorities()
	if err != nil {
		return options, "", err
	}
	if err := r.configureTLS(&options, authorities); err != nil {
		return options, "", err
	}
	options.KeyPrefix, options.WaitReplicas, options.MaxEntries = r.KeyPrefix, r.WaitReplicas, r.MaxEntries
	options.SubscribedKinds, options.UnboundedKinds = stores.SubscribedKinds(), store.UnboundedKinds
	key, err = r.settingsKey(url, authorities)
	return options, key, err
}

func (r *Store) configureTLS(o *redisstore.Options, authorities []byte) error {
	config, err := r.TLS.Config(authorities)
	switch {
	case err != nil:
		return err
	case config != nil && o.TLS == nil:
		return errors.New("tls_ca and tls_client require a url with the scheme rediss")
	case config != nil:
		o.TLS = config
	}
	return nil
}

func openStore(options redisstore.Options) *stores.Remote {
	s := redisstore.New(options)
	return &stores.Remote{
		SharedStore: s, Close: s.Close,
		Check: s.Check, VolatilityReason: s.VolatilityReason, ProbeSubscription: s.ProbeSubscription, SeparateStoreHint: "the option key_prefix, another database, or another server",
		CountConnections: func() (open, opened int) {
			pool := s.Pool()
			return int(pool.TotalConns), int(pool.TotalConns - pool.IdleConns)
		},
	}
}

// settingsKey returns a hash of all settings, including the contents of certificate authority files. Configurations with
// different settings do not share connections. The hash reveals no secrets.
func (r *Store) settingsKey(url string, authorities []byte) (string, error) {
	text, err := json.Marshal([]any{r.TLS, authorities, url, r.KeyPrefix, r.WaitReplicas, r.MaxEntries})
	return fmt.Sprintf("%x", sha256.Sum256(text)), err
}

// UnmarshalCaddyfile sets up the store from Caddyfile tokens. Syntax:
//
//	store redis {
//		url <url>
//		tls_ca <file>
//		tls_client <certificate> <key>
//		key_prefix <text>
//		wait_replicas <number>
//		max_entries <number>
//	}
func (r *Store) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	fields := option.Block{
		"url":           option.Word(&r.URL, option.IfLiteral(checkURL)),
		"key_prefix":    option.Word(&r.KeyPrefix, nil),
		"wait_replicas": option.NonNegativeNumber(&r.WaitReplicas),
		"max_entries":   option.Number(&r.MaxEntries),
	}
	maps.Copy(fields, r.TLS.Subdirectives())
	return option.ParseDirective(d, fields)
}

func checkURL(text string) error {
	_, err := parseURL(text)
	return err
}

var (
	_ caddy.Provisioner     = (*Store)(nil)
	_ caddy.CleanerUpper    = (*Store)(nil)
	_ caddyfile.Unmarshaler = (*Store)(nil)
)

// Errors about a URL never quote the input: if it is malformed, any part may be a password.
var (
	errURL = errors.New("invalid url: use redis://[<user>:<password>@]<host>[:<port>][/<database>], rediss://… or unix://[<user>:<password>@]/<socket>; " +
		"percent-encode the user and password: %40 for @, %2F for /, %3A for :, %3F for ? and %23 for #")
	errURLParameter = errors.New("url has an unknown, repeated or invalid parameter: supported are addr, cluster, db, master_name, sentinel_username and sentinel_password")
	errURLModes     = errors.New("url has conflicting parameters: use either master_name or cluster, and only the parameters that belong to it")
	errURLDatabase  = errors.New("url selects a database, but a cluster has only database 0")
)

// parseURL parses a URL into the addresses of the servers and the credentials.
func parseURL(text string) (o redisstore.Options, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Fragment != "" {
		return o, errURL
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return o, errURL
	}
	o.Username = u.User.Username()
	o.Password, _ = u.User.Password()
	database := q.Get("db")
	switch u.Scheme {
	case "unix":
		o.Address = u.Path
		if u.Host != "" || u.Path == "" {
			return o, errURL
		}
	case "rediss":
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		fallthrough
	case "redis":
		if database != "" {
			return o, errURLParameter
		}
		database = strings.TrimPrefix(u.Path, "/")
		if o.Address, err = withDefaultPort(u.Host); err != nil {
			return o, err
		}
	default:
		return o, errURL
	}
	if database != "" {
		if o.Database, err = strconv.Atoi(database); err != nil || o.Database < 0 {
			return o, errURL
		}
	}
	return o, applyParameters(&o, q)
}

// withDefaultPort returns the host with the default port if it has none.
func withDefaultPort(host string) (string, error) {
	u := url.URL{Host: host}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 || u.Hostname() == "" {
		return "", errURL
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// applyParameters applies the query parameters that select Sentinels or cluster nodes.
func applyParameters(o *redisstore.Options, q url.Values) error {
	addresses := []string{o.Address}
	for name, values := range q {
		switch name {
		case "addr":
			for _, value := range values {
				address, err := withDefaultPort(value)
				if err != nil {
					return errURLParameter
				}
				addresses = append(addresses, address)
			}
			continue
		case "db", "master_name", "sentinel_username", "sentinel_password":
		case "cluster":
			if values[0] != "true" {
				return errURLParameter
			}
		default:
			return errURLParameter
		}
		if len(values) > 1 || values[0] == "" {
			return errURLParameter
		}
	}
	sentinel, cluster := q.Has("master_name"), q.Has("cluster")
	switch {
	case sentinel && cluster, !sentinel && (q.Has("sentinel_username") || q.Has("sentinel_password")),
		!sentinel && !cluster && q.Has("addr"), (sentinel || cluster) && strings.HasPrefix(o.Address, "/"):
		return errURLModes
	case cluster && o.Database != 0:
		return errURLDatabase
	case sentinel:
		o.Sentinel = redisstore.Sentinel{
			Master: q.Get("master_name"), Nodes: addresses, Username: q.Get("sentinel_username"), Password: q.Get("sentinel_password"),
		}
		o.Address = ""
	case cluster:
		o.Cluster, o.Address = addresses, ""
	}
	return nil
}
