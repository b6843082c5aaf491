package postgresstore

import (
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// The errors of connection strings and addresses. They quote nothing: after a mistake, a
// password may be anywhere.
var (
	errURLAsName = errors.New("a host, user or database is itself a URL, or has a part of one: a whole URL goes into dsn; in its user and password, write %40 for @, %2F for /, %3F for ? and %23 for #")
	errListenURL = errors.New("the listen address must be a host, or a host with a port, and no URL")
)

// faults are what pgx says of a connection string, before it says what it found there, and
// what is said here.
var faults = []struct{ says, means string }{
	{"failed to parse as URL", "it is not a URL; in its user and password, write %40 for @, %2F for /, %3F for ? and %23 for #"},
	{"failed to parse as keyword/value", "it is neither a URL nor keyword=value pairs; a value with spaces goes into single quotes, in which \\ goes before ' and \\"},
	{"invalid port", "its port is not a number from 1 to 65535; in a URL, write %40 for @, %2F for /, %3F for ? and %23 for # in the user and password"},
	{"invalid connect_timeout", "its connect_timeout is not a number of seconds"},
	{"failed to configure TLS", "what it says of TLS is wrong, or a file that it names cannot be read (sslmode, sslrootcert, sslcert, sslkey)"},
	{"could not match", "it has another number of ports than of hosts"},
	{"unknown target_session_attrs", "its target_session_attrs is unknown"},
	{"failed to read service", "its service is not in the service file, or that cannot be read"},
	{"cannot parse pool_", "an option of it that begins with pool_ has a wrong value"},
}

// unreadable says why a connection string cannot be used, without the error that pgx has for
// it: that leaves out the password only where it recognizes one.
func unreadable(err error) error {
	if parsing, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		parsing.ConnString = ""
		for _, fault := range faults {
			if strings.HasPrefix(parsing.Error(), "cannot parse ``: "+fault.says) {
				return errors.New(fault.means)
			}
		}
	}
	return errors.New("it cannot be used: write a URL, or keyword=value pairs as libpq takes them")
}

// checkNames refuses names that the parts of a URL became, since errors and logs tell them.
func checkNames(c *pgconn.Config) error {
	hosts := []string{c.Host}
	for _, f := range c.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	misread := slices.ContainsFunc(hosts, isURL) || isURL(c.Database) || strings.Contains(c.User, "://")
	for name := range c.RuntimeParams {
		misread = misread || strings.ContainsAny(name, "@/:")
	}
	if misread {
		return errURLAsName
	}
	return nil
}

// isURL reports whether a name is a URL, or what is left of one. The @ at the beginning is of
// an abstract socket.
func isURL(name string) bool {
	return strings.Contains(name, "://") || strings.LastIndexByte(name, '@') > 0
}
