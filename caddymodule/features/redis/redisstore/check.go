package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// check asks all masters.
func (c *connection) check(ctx context.Context) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return c.failed(ctx, c.eachMaster(ctx, checkServer))
}

func checkServer(ctx context.Context, server *redis.Client) error {
	text, err := server.Info(ctx, "everything").Result()
	if err != nil {
		return checkFailure(ctx, err)
	}
	info := parseInfo(text)
	version := info["redis_version"] // Valkey's too: of the Redis that it is compatible with
	switch {
	case !atLeast(version, 6, 2):
		return fmt.Errorf("%w: it has version %s: 6.2 or newer is needed", ErrUnsuitable, version)
	case info["role"] == "slave":
		return fmt.Errorf("%w: it is a replica of %s, which takes no changes: name that one as the address, or use sentinel", ErrUnsuitable, info["master_host"])
	}
	return policy(info)
}

// checkPolicy asks a server that was checked before: its policy may have been changed.
func checkPolicy(ctx context.Context, server *redis.Client) error {
	text, err := server.Info(ctx, "memory").Result()
	if err != nil {
		return err
	}
	return policy(parseInfo(text))
}

func policy(info map[string]string) error {
	if info["maxmemory_policy"] == "noeviction" {
		return nil
	}
	return &store.Fault{Cause: store.CauseEviction, Err: fmt.Errorf("%w: when its memory is full, it drops entries that are in use (maxmemory-policy %s): sessions would end, and revoked tokens would be valid again; set maxmemory-policy noeviction, or use a server of its own", ErrUnsuitable, info["maxmemory_policy"])}
}

// checkFailure separates what somebody must set right from what passes.
func checkFailure(ctx context.Context, err error) error {
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return fmt.Errorf("%w: its certificate is not by an authority that is trusted (tls_ca), or not for the name or address by which it was reached: %w", ErrUnsuitable, err)
	}
	for prefix, hint := range map[string]string{
		"WRONGPASS": "username and password are wrong", "NOAUTH": "it needs a password",
		"NOPERM":               "the user lacks rights (docs/replicas.md)",
		"ERR invalid password": "the password is wrong", "ERR DB index": "it has no database of this number",
	} {
		if strings.HasPrefix(err.Error(), prefix) {
			return fmt.Errorf("%w: %s: %w", ErrUnsuitable, hint, err)
		}
	}
	return failure(ctx, err)
}

func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			info[name] = value
		}
	}
	return info
}

func atLeast(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	gotMajor, majorErr := strconv.Atoi(parts[0])
	gotMinor, minorErr := strconv.Atoi(parts[1])
	return majorErr == nil && minorErr == nil && (gotMajor > major || gotMajor == major && gotMinor >= minor)
}
