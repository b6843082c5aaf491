package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// proxies looks for ways to a FHIR server that no fhir_bearer guards.
type proxies struct {
	guarded map[string]bool     // servers behind fhir_bearer
	open    []openProxy         // without it
	guards  map[string][]string // the FHIR bases of sites that have fhir_bearer or fhir_authorize
}

// openProxy is a server that a site leads to without fhir_bearer.
type openProxy struct {
	address string
	at      place
}

func (p *proxies) add(h *reverseproxy.Handler, at place) {
	for _, upstream := range h.Upstreams {
		if at.isGuarded() {
			p.guarded[upstream.Dial] = true
			continue
		}
		p.open = append(p.open, openProxy{upstream.Dial, at})
		if len(at.guards) > 0 {
			p.guarded[upstream.Dial] = true // for the paths of that fhir_bearer
		}
	}
}

// warnings tell of servers that are guarded in one place and open in another, and of what answers requests below the FHIR
// base of a site unguarded.
func (p *proxies) warnings() (warnings []string) {
	sites := map[string][]string{}
	for _, o := range p.open {
		site := o.at.String()
		if p.guarded[o.address] {
			sites[o.address] = append(sites[o.address], site)
			continue
		}
		for _, base := range p.guards[site] {
			if o.answersBelow(base) {
				warnings = append(warnings, fmt.Sprintf("%s: reverse_proxy to %s answers requests below the FHIR base %s without fhir_bearer before it: put fhir_bearer before it, or give it a matcher for other paths", site, o.address, base))
			}
		}
	}
	for address, open := range sites {
		slices.Sort(open)
		warnings = append(warnings, fmt.Sprintf("%s: reverse_proxy leads to %s without fhir_bearer before it, and behind fhir_bearer elsewhere: let nothing lead there but what fhir_bearer guards", strings.Join(slices.Compact(open), ", "), address))
	}
	return warnings
}

// answersBelow reports whether requests for the FHIR base or below it get here. What is narrower than a type is not looked
// for.
func (o *openProxy) answersBelow(base string) bool {
	return slices.ContainsFunc([]string{base, base + "/Patient", base + "/Patient/1"}, func(path string) bool {
		return o.at.takes(path) && !anyTakes(o.at.guards, path) && !anyTakes(o.at.answered, path)
	})
}
