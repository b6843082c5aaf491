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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fairqueue"
)

// counter is what failures are counted under.
type counter struct {
	key    string // in the store
	bucket uint16
	limit  int    // how many failures are free
	owner  string // whose success takes back their failures; empty: nobody's does
}

// counterBuckets is how many counters there are of a kind. Names and addresses
// share them by their hash, whether there is such a user or not: so no flood of
// names takes more room than this, and how a name is counted does not tell
// whether it exists. That two share one makes a wait come early, now and then. Which
// two do only who has our keys can tell: else somebody with many addresses would
// choose one to have a hospital's wait.
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

func (c counter) stripe() int { return int(c.bucket) % len(Limiter{}.stripes) }

// The kinds of secret that can be guessed.
const (
	Password = "password"
	Code     = "code"
)

// Counters are those that a try counts under: the count of the person's own
// browser, or else those of the account and of the address, which all
// browsers share. A success takes back the failures of the very account, which is named
// owner, or name where there is none: of those that share its counter, or its name but
// for the spelling, one might be a guesser's own.
func (l *Limiter) Counters(r *http.Request, kind, name, owner string) ([]counter, error) {
	ctx := r.Context()
	name = CanonicalName(name)
	owner = cmp.Or(owner, name)
	if d := l.Devices.Find(r); d.Knows(name) {
		own, err := l.newCounter(ctx, kind+"-device", d.ID+"\x00"+name, d.ID+"\x00"+owner, l.Failures)
		return []counter{own}, err
	}
	account, err1 := l.newCounter(ctx, kind, name, owner, l.Failures)
	address, err2 := l.newCounter(ctx, "address", fairqueue.Network(audit.ClientAddress(ctx)), "", l.AddressFailures)
	return []counter{account, address}, errors.Join(err1, err2)
}

// maxName is how much of a typed name is looked at, in bytes, to tell it from others.
const maxName = 256

// CanonicalName is one for all spellings that a person could take for the same
// name, so that spelling it differently gains no further tries. Which name signs
// in is decided elsewhere, to the letter; no name has an alias there.
func CanonicalName(name string) string {
	name = name[:min(len(name), maxName)]
	return cases.Fold().String(strings.TrimSpace(norm.NFKC.String(name)))
}
