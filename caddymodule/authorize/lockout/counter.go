package lockout

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
)

// counterBuckets is how many counters of a kind there are. Names and addresses share them by
// hash, whether or not the user exists: no flood of names takes more room, and counting does
// not tell which names exist. Those that share one may have to wait earlier. The hash is
// keyed, so that nobody can choose an address that shares a hospital's.
const counterBuckets = 1 << 14

func (l *Limiter) newCounter(ctx context.Context, kind, name, owner string, limit int) (counter, error) {
	sum, err := l.Keys.MAC(ctx, kind+"\x00"+name)
	if err != nil {
		return counter{}, err
	}
	bucket := binary.BigEndian.Uint16(sum) % counterBuckets
	c := counter{key: fmt.Sprintf("lockout:%s:%04x", kind, bucket), bucket: bucket, limit: limit}
	if owner != "" {
		sum, err = l.Keys.MAC(ctx, "owner\x00"+owner)
		c.owner = base64.RawURLEncoding.EncodeToString(sum[:min(len(sum), 9)])
	}
	return c, err
}

// The kinds of secret that can be guessed.
const (
	Password = "password"
	Code     = "code"
	secret   = "secret" // a client's, or the token of a registration
)

// devicesLimit is how many times the failures of one browser those of all may be in which the
// person signed in before: several cookies are worth little more than one.
const devicesLimit = 2

// Counters returns what an attempt counts under, and whether the browser is one in which the
// owner of the account signed in before: then it is the browser, and all such browsers
// together, or else the account and the address. A success cancels the failures of the account
// (if there is none, of the name) only, in this browser: other accounts under the same
// counter, or other spellings of the name, may be an attacker's own.
func (l *Limiter) Counters(r *http.Request, kind, name, account string) (counters []counter, known bool, err error) {
	ctx := r.Context()
	name = CanonicalName(name)
	owner := cmp.Or(account, name)
	device, err := l.Devices.Knowing(r, account)
	if err != nil {
		return nil, false, err
	}
	if device != "" {
		own, err1 := l.newCounter(ctx, kind+"-device", device+"\x00"+name, device+"\x00"+owner, l.Failures)
		all, err2 := l.newCounter(ctx, kind+"-devices", name, device+"\x00"+owner, devicesLimit*l.Failures)
		return []counter{own, all}, true, errors.Join(err1, err2)
	}
	counted, err1 := l.newCounter(ctx, kind, name, owner, l.Failures)
	address, err2 := l.newCounter(ctx, "address", fairqueue.Network(audit.ClientAddress(ctx)), "", l.AddressFailures)
	return []counter{counted, address}, false, errors.Join(err1, err2)
}

const maxName = 256 // bytes of a typed name that count

// CanonicalName is the same for all spellings that look like one name, so that another
// spelling gains no further attempts. Sign-in itself compares names exactly.
func CanonicalName(name string) string {
	name = name[:min(len(name), maxName)]
	return cases.Fold().String(strings.TrimSpace(norm.NFKC.String(name)))
}
