package page

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Policy is what a page may do beyond showing text, as sources of the
// Content-Security-Policy. No page may load anything else, run an unknown script, or be
// framed by a site that is not named (RFC 9700 §4.16).
type Policy struct {
	Ancestors  string // who may frame it. Default: nobody.
	FormAction string // where forms may lead. Default: nowhere.
	Images     string // such as "data:". Default: none.
	Connect    string // what scripts may ask, such as "'self'". Default: nothing.
}

// ancestor is the origin of a page around ours: CSP 3 §2.3.1, without wildcards.
var ancestor = regexp.MustCompile(`^(https://[a-z0-9.-]+|http://localhost)(:[0-9]{1,5})?$`)

// CheckAncestor refuses what is no origin that may frame a page.
func CheckAncestor(origin string) error {
	if !ancestor.MatchString(origin) {
		return fmt.Errorf("frame_ancestors: %q is no origin such as https://ehr.example.org: https, in lower case, with nothing after host and port", origin)
	}
	return nil
}

func (p Policy) header(style, script string) string {
	header := "default-src 'none'; base-uri 'none'; frame-ancestors " + cmp.Or(p.Ancestors, "'none'") + "; style-src " + hashSource(style)
	add := func(directive, sources string) {
		if sources != "" {
			header += "; " + directive + " " + sources
		}
	}
	add("img-src", strings.TrimSpace(p.Images))
	add("connect-src", p.Connect)
	if p.FormAction == "" {
		p.FormAction = "'none'"
	}
	add("form-action", p.FormAction)
	if script != "" {
		add("script-src", hashSource(script))
	}
	return header
}

func hashSource(text string) string {
	hash := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'"
}

// FormAction returns the sources for forms that lead here and on to addresses. If one is another
// server's, Chromium applies the policy to every redirect that follows: to the client, to an
// identity provider, and on to any https address. Plain http is for loopback alone, and listed; a policy can
// name neither IPv6 addresses (CSP 3 §2.3.1) nor hosts of private-use schemes.
func FormAction(addresses ...string) string {
	allowed, leadsOut := "", false
	for _, address := range addresses {
		u, err := url.Parse(address)
		leadsOut = leadsOut || err != nil || u.Scheme != ""
		switch {
		case err != nil || u.Scheme == "https" || u.Scheme == "":
		case u.Scheme == "http" && !strings.HasPrefix(u.Host, "["):
			allowed += " http://" + u.Host
		default:
			allowed += " " + u.Scheme + ":"
		}
	}
	if leadsOut {
		allowed = " https:" + allowed
	}
	return "'self'" + allowed
}
