package cache

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
)

// directives are those of a Cache-Control header; names are in lower case.
type directives map[string]string

// parseDirectives reads Cache-Control (RFC 9111 §5.2).
func parseDirectives(values []string) directives {
	if len(values) == 0 {
		return nil
	}
	d := make(directives)
	for item := range negotiation.Items(values) {
		name, value, _ := strings.Cut(item, "=")
		name = strings.ToLower(strings.Trim(name, " \t"))
		if _, repeated := d[name]; !repeated {
			d[name] = strings.Trim(value, " \t\"")
		}
	}
	return d
}

func (d directives) has(name string) bool {
	_, ok := d[name]
	return ok
}

// seconds returns the value of a directive in seconds. One that cannot be read counts as 0 (RFC 9111 §4.2.1).
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

// freshness is how long an answer may be used.
type freshness struct {
	age time.Duration // when it came here

	// Counted from when the answer was made, which was age before it came here.
	fresh                time.Duration // used without asking
	staleWhileRevalidate time.Duration // used while asking (RFC 5861 §3)
	staleIfError         time.Duration // used if asking fails (RFC 5861 §4)
	kept                 time.Duration // kept at least for validation
}

func isNegative(status int) bool {
	return status == http.StatusNotFound || status == http.StatusGone || status == http.StatusUnprocessableEntity
}

func (a *Answer) isNegative() bool { return a.Negative || isNegative(a.Status) }

// freshnessOf returns how long an answer may be used, and whether it may be stored at all (RFC 9111 §3). The lifetime is
// what the answer says, and at most and by default what the options say.
func (o *Options) freshnessOf(a *Answer, key Key, now time.Time) (f freshness, ok bool) {
	d := parseDirectives(a.Header["Cache-Control"])
	switch {
	case a.Status != http.StatusOK && !isNegative(a.Status),
		len(a.Body) == 0,
		d.has("no-store"),
		d.has("private") && !key.personal,
		len(a.Header["Set-Cookie"]) > 0, // is for one client
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
	f.staleWhileRevalidate, f.staleIfError = f.fresh, f.fresh
	if !a.isNegative() && !d.has("no-cache") && !d.has("must-revalidate") && !d.has("proxy-revalidate") {
		f.staleWhileRevalidate += d.atMost("stale-while-revalidate", o.StaleWhileRevalidate)
		f.staleIfError += d.atMost("stale-if-error", o.StaleIfError)
	}
	f.kept = max(f.staleWhileRevalidate, f.staleIfError)
	if canRevalidate(a) {
		f.kept = max(f.kept, f.fresh, f.age) + o.TTL
	}
	return f, f.kept > f.age
}

func isFailure(status int) bool {
	return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
}

// canRevalidate reports whether an answer is worth storing just for validation.
func canRevalidate(a *Answer) bool {
	return a.Status == http.StatusOK && a.Header.Get("Etag") != ""
}

// atMost returns the value of a directive, at most limit; limit if there is none.
func (d directives) atMost(name string, limit time.Duration) time.Duration {
	if value, ok := d.seconds(name); ok {
		return min(value, limit)
	}
	return limit
}

// saidLifetime is the lifetime that an answer declares (RFC 9111 §4.2.1).
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
		return 0, true // an invalid date is in the past (RFC 9111 §5.3)
	}
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date
	}
	return max(0, end.Sub(now)), true
}

// ageOf is how old an answer is by its Age or its Date, whichever is more (RFC 9111 §4.2.3).
func ageOf(header http.Header, now time.Time) (age time.Duration) {
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		age = now.Truncate(time.Second).Sub(date)
	}
	if n, err := strconv.ParseUint(header.Get("Age"), 10, 31); err == nil {
		age = max(age, time.Duration(n)*time.Second)
	}
	return max(0, age)
}

// varyIsKept reports whether the key holds all that Vary names (RFC 9111 §4.1): of the headers that the producer gets, only
// credentials may be missing.
func varyIsKept(vary []string, key Key) bool {
	for name := range negotiation.Items(vary) {
		isCredential := slices.ContainsFunc([]string{"Authorization", "Cookie"}, func(c string) bool { return strings.EqualFold(c, name) })
		if name == "*" || isCredential && !key.personal {
			return false
		}
	}
	return true
}
