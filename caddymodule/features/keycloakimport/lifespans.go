package keycloakimport

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
)

// lifespans are a realm's lifetimes in seconds; 0 means unset.
type lifespans struct {
	AccessToken       int  `json:"accessTokenLifespan"`
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

// sessionMax is the lifetime of sessions, and sessionIdle that of sessions without activity.
func (l lifespans) sessionMax() int  { return shortest(l.SessionMax, l.ClientSessionMax) }
func (l lifespans) sessionIdle() int { return shortest(l.SessionIdle, l.ClientSessionIdle) }

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

// shorter returns the reason why a client's own lifetimes would be exceeded here, where all clients have the realm's; ""
// if they would not.
func (l lifespans) shorter(attributes map[string]string) string {
	for _, own := range []struct {
		attribute string
		realm     int
	}{
		{"access.token.lifespan", l.AccessToken},
		{"client.session.idle.timeout", l.sessionIdle()},
		{"client.session.max.lifespan", l.sessionMax()},
		{"client.offline.session.idle.timeout", shortest(l.OfflineIdle, l.ClientOfflineIdle)},
		{"client.offline.session.max.lifespan", l.offlineMax()},
	} {
		text := attributes[own.attribute]
		length, err := strconv.Atoi(cmp.Or(text, "0"))
		if err != nil || length > 0 && length < cmp.Or(own.realm, math.MaxInt) {
			return fmt.Sprintf("its %s of %s seconds is shorter than the realm's; lifetimes are the same for all clients here", own.attribute, text)
		}
	}
	return ""
}
