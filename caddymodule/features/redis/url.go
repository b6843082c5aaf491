package redis

import (
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/redis/redisstore"
)

// The errors of a URL quote nothing: after a mistake, a password may be anywhere.
var (
	errURL = errors.New("url is not redis://[<user>:<password>@]<host>[:<port>][/<database>], rediss://… or unix://[<user>:<password>@]/<socket>; " +
		"in its user and password, write %40 for @, %2F for /, %3A for :, %3F for ? and %23 for #")
	errURLParameter = errors.New("url has another parameter than addr, cluster, db, master_name, sentinel_username and sentinel_password, or one of them twice or with a wrong value")
	errURLWays      = errors.New("url has master_name and cluster, which exclude each other, or parameters of one without it")
	errURLDatabase  = errors.New("url names a database of a cluster, which has none but 0")
)

// parseURL reads where the servers are, and how to authenticate there.
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
		if o.Address, err = hostPort(u.Host); err != nil {
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
	return o, setParameters(&o, q)
}

// hostPort adds the default port.
func hostPort(host string) (string, error) {
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

// setParameters turns the address into one of Sentinels or of cluster nodes, if a parameter selects these.
func setParameters(o *redisstore.Options, q url.Values) error {
	addresses := []string{o.Address}
	for name, values := range q {
		switch name {
		case "addr":
			for _, value := range values {
				address, err := hostPort(value)
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
		return errURLWays
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
