// Package browser stores state in cookies, and seals form values so that only the same browser can submit them.
package browser

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// CookiePrefix is the prefix of all cookies of the gateway. They are not forwarded to servers behind it. Browsers accept
// cookies with the prefix __Host- only from the same host and over TLS (RFC 6265bis §4.1.3.2).
const CookiePrefix = "__Host-fhir-"

// Cookie names and prefixes of cookie names.
const (
	SessionCookie = CookiePrefix + "session"
	IDPrefix      = CookiePrefix + "browser-"
	PendingPrefix = CookiePrefix + "away-" // pending sign-ins at identity providers
	deviceCookie  = CookiePrefix + "device"

	LastRequestCookie = CookiePrefix + "last" // sealed query of the last sign-in at an identity provider

	providerPrefix = CookiePrefix + "idp-" // see [ProviderVisit]
)

// NewCookie returns a cookie that is inaccessible to scripts and to cross-site forms.
func NewCookie(name, value string) *http.Cookie {
	return &http.Cookie{
		Name: name, Value: value, Path: "/",
		Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
}

// ClearPages deletes the pages that the browser keeps for its Back button, e.g. with the patients of a person who has signed
// out. Chromium keeps pages despite Cache-Control: no-store.
func ClearPages(w http.ResponseWriter) { w.Header().Set("Clear-Site-Data", `"cache"`) }

// RemoveCookie deletes a cookie in the browser.
func RemoveCookie(w http.ResponseWriter, name string) {
	c := NewCookie(name, "")
	c.MaxAge = -1
	http.SetCookie(w, c)
}

// RemoveSession deletes the session's cookie, its pages, and the last request, which may name the person. It ends sign-ins that a
// person has not confirmed yet.
func RemoveSession(w http.ResponseWriter, r *http.Request) {
	ClearPages(w)
	RemoveCookie(w, SessionCookie)
	RemoveCookie(w, LastRequestCookie)
	EndProviderVisits(w, r, "")
}

// ProviderVisit is a record that the browser visited an identity provider and may be signed in there. It outlasts the gateway's
// session, as the session at the provider can.
type ProviderVisit struct {
	SignedInAt time.Time // auth_time of the last person whom the provider returned; zero if none or unknown
	Mark       string    // identifies the latest sign-in at the provider
	Stage      string    // VisitStarted, VisitCompleted or VisitSignedOut
}

// Stages of a [ProviderVisit].
const (
	VisitStarted   = "started"    // the latest sign-in has not returned a person
	VisitCompleted = "completed"  // the provider has returned a person
	VisitSignedOut = "signed-out" // that person signed out at the gateway, or someone else signed in
)

const (
	visitPrefix   = "auth_time-" // precedes the seconds since 1970 in the cookie, the mark and the stage, separated by dots
	visitLifetime = 30 * 24 * time.Hour
)

// SetProviderVisit records a visit at the identity provider with an issuer.
func SetProviderVisit(w http.ResponseWriter, issuer string, visit ProviderVisit) {
	visit.setCookie(w, visitCookieName(issuer))
}

func (v ProviderVisit) setCookie(w http.ResponseWriter, name string) {
	c := NewCookie(name, visitPrefix+strconv.FormatInt(max(0, v.SignedInAt.Unix()), 10)+"."+v.Mark+"."+v.Stage)
	c.MaxAge = int(visitLifetime.Seconds())
	http.SetCookie(w, c)
}

// FindProviderVisit returns the recorded visit at the identity provider with an issuer, or nil.
func FindProviderVisit(r *http.Request, issuer string) *ProviderVisit {
	c, err := r.Cookie(visitCookieName(issuer))
	if err != nil || c.Value == "" {
		return nil
	}
	visit := readVisit(c.Value)
	return &visit
}

func readVisit(cookie string) (v ProviderVisit) {
	seconds, rest, _ := strings.Cut(strings.TrimPrefix(cookie, visitPrefix), ".")
	v.Mark, v.Stage, _ = strings.Cut(rest, ".")
	if n, err := strconv.ParseInt(seconds, 10, 64); err == nil && n > 0 {
		v.SignedInAt = time.Unix(n, 0)
	}
	return v
}

// VisitMark returns the mark of the recorded visit at the identity provider with an issuer, or "".
func VisitMark(r *http.Request, issuer string) string {
	if visit := FindProviderVisit(r, issuer); visit != nil {
		return visit.Mark
	}
	return ""
}

// EndProviderVisits records for identity providers that the person whom the provider returned has signed out at the gateway, or that
// someone else has signed in. except is the issuer of the provider that returned that other person, or "". A sign-in that has not
// returned remains started, because its person may have authenticated at the provider.
func EndProviderVisits(w http.ResponseWriter, r *http.Request, except string) {
	for _, c := range r.Cookies() {
		visit := readVisit(c.Value)
		if strings.HasPrefix(c.Name, providerPrefix) && c.Name != visitCookieName(except) && visit.Stage == VisitCompleted {
			visit.Stage = VisitSignedOut
			visit.setCookie(w, c.Name)
		}
	}
}

// RemoveProviderVisit deletes the record, because the browser was signed out at the identity provider.
func RemoveProviderVisit(w http.ResponseWriter, issuer string) {
	RemoveCookie(w, visitCookieName(issuer))
}

// visitCookieName returns the name of the cookie for an issuer. Several providers of the configuration may have one issuer.
func visitCookieName(issuer string) string {
	sum := sha256.Sum256([]byte(issuer))
	return providerPrefix + base64.RawURLEncoding.EncodeToString(sum[:])[:12]
}

const (
	chunkSize = 3960 // bytes; with its name and attributes, a cookie stays below the browsers' limit of 4096 bytes

	// maxChunks limits the total size of the cookies of pending sign-ins, which the browser sends with each request. Caddy
	// accepts 16 KiB of headers.
	maxChunks = 3
)

var errRequestTooLong = oauth2.InvalidRequest("the authorization request is too long for sign-in at an identity provider")

// SetChunkedCookie stores a value in as many cookies as necessary. If the cookies of pending sign-ins would become too large,
// it deletes those of earlier sign-ins.
func SetChunkedCookie(w http.ResponseWriter, r *http.Request, name, value string, lifetime time.Duration) error {
	if len(value) > maxChunks*chunkSize {
		return errRequestTooLong
	}
	removeAbandonedSignIns(w, r, maxChunks*chunkSize-len(value))
	for i := 0; len(value) > 0; i++ {
		chunk := value[:min(len(value), chunkSize)]
		value = value[len(chunk):]
		c := NewCookie(name+"-"+strconv.Itoa(i), chunk)
		c.MaxAge = int(lifetime.Seconds())
		http.SetCookie(w, c)
	}
	return nil
}

// removeAbandonedSignIns deletes the cookies of all earlier sign-ins if they are larger than space, in bytes. It cannot delete
// only the oldest, because their ages are unknown.
func removeAbandonedSignIns(w http.ResponseWriter, r *http.Request, space int) {
	var abandoned []string
	for _, c := range r.Cookies() {
		if strings.HasPrefix(c.Name, PendingPrefix) {
			abandoned = append(abandoned, c.Name)
			space -= len(c.Name) + len(c.Value)
		}
	}
	for _, name := range abandoned {
		if space < 0 {
			RemoveCookie(w, name)
		}
	}
}

func findChunks(r *http.Request, name string) (found []*http.Cookie) {
	for i := range maxChunks {
		c, err := r.Cookie(name + "-" + strconv.Itoa(i))
		if err != nil {
			break
		}
		found = append(found, c)
	}
	return found
}

// ReadChunkedCookie returns the value stored by [SetChunkedCookie]; "" if there is none.
func ReadChunkedCookie(r *http.Request, name string) string {
	var value strings.Builder
	for _, c := range findChunks(r, name) {
		value.WriteString(c.Value)
	}
	return value.String()
}

// RemoveChunkedCookie deletes the cookies set by [SetChunkedCookie].
func RemoveChunkedCookie(w http.ResponseWriter, r *http.Request, name string) {
	for _, c := range findChunks(r, name) {
		RemoveCookie(w, c.Name)
	}
}

const maxBrowserIDs = 16 // maximum number of browser ids read per request

// browserIDs returns the ids of this browser. There are several if a new browser opened tabs concurrently: each response set a
// cookie with a different name.
func browserIDs(r *http.Request) (ids []string) {
	for _, c := range r.Cookies() {
		if strings.HasPrefix(c.Name, IDPrefix) && c.Value != "" && len(ids) < maxBrowserIDs {
			ids = append(ids, c.Value)
		}
	}
	return ids
}

// browserID returns the id of this browser. If it has none, browserID sets a new one.
func browserID(w http.ResponseWriter, r *http.Request) string {
	if ids := browserIDs(r); len(ids) > 0 {
		return ids[0]
	}
	id := oauth2.RandomToken()
	http.SetCookie(w, NewCookie(IDPrefix+oauth2.RandomToken()[:8], id))
	return id
}

// Sealer seals form values for one browser and one purpose.
type Sealer struct {
	Keys keyring.BrowserSealer // sealing keys
}

// sealBinding returns the binding of texts with a purpose. The browser's id is not part of the binding but precedes the text, so
// that [Sealer.Recover] can unseal the text in another browser.
func sealBinding(purpose string) string { return "browser " + purpose }

// idPrefix returns the prefix of texts that are sealed for a browser. Its length is fixed: the id is from a cookie, which the
// browser could set to any text, and must not become part of the sealed text.
func idPrefix(id string) string {
	sum := sha256.Sum256([]byte(id))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

var idPrefixSize = len(idPrefix(""))

// Seal seals a text for this browser.
func (s *Sealer) Seal(w http.ResponseWriter, r *http.Request, purpose, text string) (string, error) {
	return s.Keys.Seal(r.Context(), idPrefix(browserID(w, r))+text, sealBinding(purpose))
}

// SealJSON is like [Sealer.Seal], but seals a value as JSON.
func (s *Sealer) SealJSON(w http.ResponseWriter, r *http.Request, purpose string, value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	return s.Seal(w, r, purpose, string(text))
}

// Unseal returns a text sealed by [Sealer.Seal] for this browser and purpose at most maxAge ago. If there is none, the error is
// the parameter expired.
func (s *Sealer) Unseal(r *http.Request, purpose, sealed string, maxAge time.Duration, expired error) (string, error) {
	bound, err := s.Keys.Unseal(r.Context(), sealed, sealBinding(purpose), maxAge)
	isOfBrowser := func(id string) bool { return strings.HasPrefix(bound, idPrefix(id)) }
	switch {
	case errors.Is(err, keyring.ErrUnsealFailed), err == nil && !slices.ContainsFunc(browserIDs(r), isOfBrowser):
		return "", expired
	case err != nil:
		return "", err
	}
	return bound[idPrefixSize:], nil
}

// anyAge is a maximum age that outlasts every sealing key.
const anyAge = 100 * 365 * 24 * time.Hour

// Recover returns a text sealed by [Sealer.Seal] for any browser at any time, or "" if it cannot be unsealed. Callers must not
// rely on who submitted it: any site can send a browser here with a text that it got itself.
func (s *Sealer) Recover(ctx context.Context, purpose, sealed string) string {
	bound, err := s.Keys.Unseal(ctx, sealed, sealBinding(purpose), anyAge)
	if err != nil {
		return ""
	}
	return bound[idPrefixSize:]
}

// HasID reports whether the browser sent its id. Browsers that accept cookies send it with every request after the first.
func HasID(r *http.Request) bool { return len(browserIDs(r)) > 0 }

// UnsealJSON is like [Sealer.Unseal], but decodes a JSON value.
func (s *Sealer) UnsealJSON(r *http.Request, purpose, sealed string, maxAge time.Duration, expired error, to any) error {
	text, err := s.Unseal(r, purpose, sealed, maxAge, expired)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), to)
}

// Check is like [Sealer.Unseal], but compares the text with an expected one, e.g. the session in which a form was shown.
func (s *Sealer) Check(r *http.Request, purpose, sealed, expected string, maxAge time.Duration, expired error) error {
	text, err := s.Unseal(r, purpose, sealed, maxAge, expired)
	if err == nil && text != expected {
		return expired
	}
	return err
}

const (
	// deviceLifetime is how long a browser is trusted after a sign-in. Rotation of the key that seals the cookie may shorten
	// it.
	deviceLifetime = 90 * 24 * time.Hour

	// maxDeviceUsers is the maximum number of users for whom a browser is trusted, e.g. on a ward's computer. Beyond it, the
	// user with the earliest sign-in is removed.
	maxDeviceUsers = 32
)

// Devices recognizes, by a sealed cookie, browsers in which users have signed in before. The cookie does not sign anyone in.
// Failed attempts in known browsers are counted separately, so that attackers elsewhere cannot lock out the owner of an account
// (OWASP, device cookies).
type Devices struct {
	Keys keyring.BrowserSealer // sealing keys for the cookies

	// Binding returns a value that changes with the password and the second factors of an account. After a change, the
	// account's browsers are no longer trusted.
	Binding func(ctx context.Context, account string) (string, error)
}

// device is the content of the device cookie.
type device struct {
	ID    string   `json:"id"`    // id of the browser
	Users []string `json:"users"` // results of deviceUser with the binding, latest first
}

// deviceUser returns a hash that identifies a user in the device cookie without revealing the name.
func deviceUser(name string) string {
	sum := sha256.Sum256([]byte(name))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

func (ds *Devices) userEntry(ctx context.Context, account string) (string, error) {
	binding, err := ds.Binding(ctx, account)
	return deviceUser(account) + "." + deviceUser(account+"\x00"+binding), err
}

// readCookie returns the content of the device cookie, or the zero value if there is no valid one.
func (ds *Devices) readCookie(r *http.Request) (d device) {
	cookie, err := r.Cookie(deviceCookie)
	if err != nil {
		return d
	}
	text, err := ds.Keys.Unseal(r.Context(), cookie.Value, deviceCookie, deviceLifetime)
	if err != nil || json.Unmarshal([]byte(text), &d) != nil {
		return device{}
	}
	return d
}

// TrustedBrowserID returns the id of the browser if the owner of the account has signed in there with the current password and
// second factors; otherwise "".
func (ds *Devices) TrustedBrowserID(r *http.Request, account string) (string, error) {
	d := ds.readCookie(r)
	if account == "" || len(d.Users) == 0 {
		return "", nil
	}
	entry, err := ds.userEntry(r.Context(), account)
	if err != nil || !slices.Contains(d.Users, entry) {
		return "", err
	}
	return d.ID, nil
}

// TrustCookie returns the device cookie after a sign-in, which makes the browser trusted for the account.
func (ds *Devices) TrustCookie(r *http.Request, account string) (*http.Cookie, error) {
	d := ds.readCookie(r)
	if d.ID == "" {
		d.ID = oauth2.RandomToken()
	}
	entry, err := ds.userEntry(r.Context(), account)
	if err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(d.Users, func(other string) bool { return strings.HasPrefix(other, deviceUser(account)) })
	d.Users = append([]string{entry}, others[:min(len(others), maxDeviceUsers-1)]...)
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	sealed, err := ds.Keys.Seal(r.Context(), string(text), deviceCookie)
	if err != nil {
		return nil, err
	}
	cookie := NewCookie(deviceCookie, sealed)
	cookie.MaxAge = int(deviceLifetime.Seconds())
	return cookie, nil
}
