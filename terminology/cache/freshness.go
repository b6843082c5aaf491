package cache

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// directives are those of a Cache-Control header, with their names in lower case.
type directives map[string]string

// parseDirectives reads Cache-Control (RFC 9111 §5.2).
func parseDirectives(values []string) directives {
	if len(values) == 0 {
		return nil
	}
	d := make(directives)
	for item := range listItems(values) {
		name, value, _ := strings.Cut(item, "=")
		name = strings.ToLower(strings.Trim(name, " \t"))
		if _, repeated := d[name]; !repeated {
			d[name] = strings.Trim(value, " \t\"")
		}
	}
	return d
}

// has reports whether there is a directive.
func (d directives) has(name string) bool {
	_, ok := d[name]
	return ok
}

// seconds returns the value of a directive that is a number of seconds. One that cannot be read counts as 0,
// as RFC 9111 §4.2.1 encourages.
func (d directives) seconds(name string) (value time.Duration, ok bool) {
	text, ok := d[name]
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, true
	}
	return time.Duration(n) * time.Second, true
}

// freshness is for how long an answer may be used.
type freshness struct {
	age time.Duration // when it came here

	// Counted from when the answer was made, which is age before it came here.
	fresh       time.Duration // to be used without asking
	revalidate  time.Duration // to be used while asking (RFC 5861 §3)
	unreachable time.Duration // to be used if asking fails (RFC 5861 §4)
	kept        time.Duration // to be kept, since it may at least be asked about
}

// isNegative reports whether a status says that there is nothing to be had, which may change any time.
func isNegative(status int) bool {
	return status == http.StatusNotFound || status == http.StatusGone || status == http.StatusUnprocessableEntity
}

// isNegative reports whether an answer is for a short time only.
func (a *Answer) isNegative() bool { return a.Negative || isNegative(a.Status) }

// freshnessOf says for how long an answer to a request with the given key may be used, and whether it may be
// kept at all (RFC 9111 §3). The lifetime is what the answer says, but no more than the operator allows, and
// that where it says nothing.
func (o *Options) freshnessOf(a *Answer, key Key, now time.Time) (f freshness, ok bool) {
	d := parseDirectives(a.Header["Cache-Control"])
	switch {
	case a.Status != http.StatusOK && !isNegative(a.Status),
		len(a.Body) == 0,
		d.has("no-store"),
		d.has("private") && !key.personal,
		len(a.Header["Set-Cookie"]) > 0, // is for one client, whatever else the answer says
		!varyIsKept(a.Header["Vary"], key):
		return f, false
	}
	limit := o.TTL
	if a.isNegative() {
		limit = min(o.NegativeTTL, o.TTL)
	}
	f.age = ageOf(a.Header, now)
	f.fresh = f.age + limit
	if lifetime, said := saidLifetime(d, a.Header, now); said {
		f.fresh = min(lifetime, f.fresh)
	}
	if d.has("no-cache") {
		f.fresh = 0
	}
	f.revalidate, f.unreachable = f.fresh, f.fresh
	if !a.isNegative() && !d.has("no-cache") && !d.has("must-revalidate") && !d.has("proxy-revalidate") {
		f.revalidate += d.atMost("stale-while-revalidate", o.StaleWhileRevalidate)
		f.unreachable += d.atMost("stale-if-error", o.StaleIfError)
	}
	f.kept = max(f.revalidate, f.unreachable)
	if canRevalidate(a) {
		f.kept = max(f.kept, f.fresh, f.age) + o.TTL
	}
	return f, f.kept > f.age
}

// isFailure reports whether a status says that no answer could be made for now.
func isFailure(status int) bool {
	return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
}

// canRevalidate reports whether an answer is worth to be kept only to be asked about.
func canRevalidate(a *Answer) bool {
	return a.Status == http.StatusOK && a.Header.Get("Etag") != ""
}

// atMost returns the value of a directive, bounded by limit, which it is where there is no such directive.
func (d directives) atMost(name string, limit time.Duration) time.Duration {
	if value, ok := d.seconds(name); ok {
		return min(value, limit)
	}
	return limit
}

// saidLifetime is the lifetime that an answer says it has (RFC 9111 §4.2.1).
func saidLifetime(d directives, header http.Header, now time.Time) (lifetime time.Duration, said bool) {
	for _, name := range []string{"s-maxage", "max-age"} {
		if lifetime, said = d.seconds(name); said {
			return lifetime, true
		}
	}
	expires, said := header["Expires"]
	if !said {
		return 0, false
	}
	end, err := http.ParseTime(expires[0])
	if err != nil {
		return 0, true // what is no date is a date in the past (RFC 9111 §5.3)
	}
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date
	}
	return max(0, end.Sub(now)), true
}

// ageOf is how long ago an answer was made (RFC 9111 §4.2.3): what other caches say, or its date, whichever
// is longer ago.
func ageOf(header http.Header, now time.Time) (age time.Duration) {
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		age = now.Truncate(time.Second).Sub(date)
	}
	if n, err := strconv.ParseUint(header.Get("Age"), 10, 31); err == nil {
		age = max(age, time.Duration(n)*time.Second)
	}
	return max(0, age)
}

// varyIsKept reports whether an answer depends on nothing that its key does not hold (RFC 9111 §4.1). Headers
// that the producer did not get cannot matter, so what is left are credentials.
func varyIsKept(vary []string, key Key) bool {
	for name := range listItems(vary) {
		isCredential := slices.ContainsFunc([]string{"Authorization", "Cookie"}, func(c string) bool { return strings.EqualFold(c, name) })
		if name == "*" || isCredential && !key.personal {
			return false
		}
	}
	return true
}

// wish is what a request's Cache-Control asks of a cache (RFC 9111 §5.2.1).
type wish struct {
	bypass       bool          // nothing kept, and nothing kept used
	revalidate   bool          // nothing used that was not asked about
	onlyIfCached bool          // nothing asked
	maxAge       time.Duration // nothing older than that; negative: as old as may be
}

// wishOf reads a request's Cache-Control.
func wishOf(header http.Header) wish {
	values := header["Cache-Control"]
	if len(values) == 0 {
		return wish{maxAge: -1}
	}
	d := parseDirectives(values)
	w := wish{bypass: d.has("no-store"), revalidate: d.has("no-cache"), onlyIfCached: d.has("only-if-cached"), maxAge: -1}
	if age, ok := d.seconds("max-age"); ok {
		w.maxAge = age
	}
	return w
}

// allows reports whether an answer of an age may be used.
func (w *wish) allows(age time.Duration) bool {
	return !w.revalidate && (w.maxAge < 0 || age <= w.maxAge)
}
