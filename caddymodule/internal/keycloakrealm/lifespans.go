package keycloakrealm

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
)

// lifespans are a realm's lifetimes in seconds; 0 means unset.
type lifespans struct {
	AccessToken       int  `json:"accessTokenLifespan"`
	Code              int  `json:"accessCodeLifespan"`
	SessionIdle       int  `json:"ssoSessionIdleTimeout"`
	SessionMax        int  `json:"ssoSessionMaxLifespan"`
	ClientSessionIdle int  `json:"clientSessionIdleTimeout"`
	ClientSessionMax  int  `json:"clientSessionMaxLifespan"`
	OfflineIdle       int  `json:"offlineSessionIdleTimeout"`
	OfflineMax        int  `json:"offlineSessionMaxLifespan"`
	OfflineMaxEnabled bool `json:"offlineSessionMaxLifespanEnabled"`
	ClientOfflineIdle int  `json:"clientOfflineSessionIdleTimeout"`
	ClientOfflineMax  int  `json:"clientOfflineSessionMaxLifespan"`
}

// offlineMax is the maximum lifetime of offline access; 0 means unlimited.
func (l lifespans) offlineMax() int {
	if l.OfflineMaxEnabled {
		return shortest(l.OfflineMax, l.ClientOfflineMax)
	}
	return l.ClientOfflineMax
}

// session is the lifetime of sessions here. Sessions have no idle timeout of their own here, so the idle timeout limits them.
func (l lifespans) session() int {
	return shortest(l.SessionIdle, l.SessionMax, l.ClientSessionIdle, l.ClientSessionMax)
}

// shortest is the shortest of the lifetimes that are set, or 0.
func shortest(seconds ...int) int {
	least := math.MaxInt
	for _, s := range seconds {
		if s > 0 {
			least = min(least, s)
		}
	}
	if least == math.MaxInt {
		return 0
	}
	return least
}

// lifetimes writes the realm's lifetimes.
func (c *conversion) lifetimes() {
	r := c.realm
	c.lifetime("access_token_lifetime", r.AccessToken)
	c.lifetime("code_lifetime", r.Code)
	c.lifetime("session_lifetime", r.session())
	if r.session() > 0 && r.session() < cmp.Or(r.SessionMax, math.MaxInt) {
		c.changed("session_lifetime is the idle timeout of %s, so that nobody is signed in for longer without activity; activity does not extend it", seconds(r.session()))
	}
	refresh := c.lifetime("refresh_token_lifetime", r.offlineMax())
	idle := shortest(r.OfflineIdle, r.ClientOfflineIdle)
	if maximum := int(cmp.Or(refresh, authorize.DefaultRefreshTokenLifetime) / time.Second); idle > maximum {
		c.changed("refresh_token_idle_lifetime is shorter than the %s there", seconds(idle))
		idle = maximum
	}
	c.lifetime("refresh_token_idle_lifetime", idle)
}

// lifetime writes a lifetime, at most the longest that is possible here, and returns it.
func (c *conversion) lifetime(name string, length int) time.Duration {
	if length <= 0 {
		c.changed("%s is this server's default: the realm has none", name)
		return 0
	}
	lifetime := time.Duration(length) * time.Second
	if maximum := authorize.MaxLifetime(name); lifetime > maximum {
		c.changed("%s is %v, the maximum here, and not %s", name, maximum, seconds(length))
		lifetime = maximum
	}
	c.raw(name + " " + lifetime.String())
	return lifetime
}

func seconds(s int) string { return (time.Duration(s) * time.Second).String() }

// shorterLifespan returns the reason why a client's own lifetimes would be exceeded here, where all clients have the realm's; ""
// if they would not.
func (r *realm) shorterLifespan(app client) string {
	for _, own := range []struct {
		attribute string
		realm     int
	}{
		{"access.token.lifespan", r.AccessToken},
		{"client.session.idle.timeout", r.session()},
		{"client.session.max.lifespan", r.session()},
		{"client.offline.session.idle.timeout", shortest(r.OfflineIdle, r.ClientOfflineIdle)},
		{"client.offline.session.max.lifespan", r.offlineMax()},
	} {
		text := app.Attributes[own.attribute]
		length, err := strconv.Atoi(cmp.Or(text, "0"))
		if err != nil || length > 0 && length < cmp.Or(own.realm, math.MaxInt) {
			return fmt.Sprintf("its %s of %s seconds is shorter than the realm's; lifetimes are the same for all clients here", own.attribute, text)
		}
	}
	return ""
}
