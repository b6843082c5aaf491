package account

import (
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
)

// ago says how long ago something was. Without the person's time zone there is no "today".
func ago(at time.Time) *page.Text {
	switch hours := elapsed(at); {
	case hours < 1:
		return page.T("in the last hour")
	case hours < 48:
		return page.Plural("%d hour ago", "%d hours ago", hours)
	default:
		return page.Plural("%d day ago", "%d days ago", hours/24)
	}
}

func elapsed(at time.Time) (hours int) { return int(time.Since(at).Hours()) }

// sign is a word in a User-Agent, and what it means.
type sign struct{ word, name string }

// The more special come first: most browsers claim to be others too.
var (
	browsers = []sign{
		{"Edg", "Edge"}, {"OPR/", "Opera"}, {"SamsungBrowser/", "Samsung Internet"}, {"FxiOS/", "Firefox"}, {"Firefox/", "Firefox"},
		{"CriOS/", "Chrome"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"},
	}
	systems = []sign{
		{"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Android", "Android"}, {"Windows", "Windows"}, {"CrOS", "ChromeOS"},
		{"Mac OS X", "macOS"}, {"Linux", "Linux"},
	}
)

// device says in words what a User-Agent stands for, as far as it can be believed.
func device(userAgent string) *page.Text {
	browser, system := means(userAgent, browsers), means(userAgent, systems)
	switch {
	case browser != "" && system != "":
		return page.T("%s on %s", browser, system)
	case browser != "":
		return page.T("%s on an unknown system", browser)
	case system != "":
		return page.T("a browser on %s", system)
	}
	return page.T("an unknown browser")
}

func means(userAgent string, signs []sign) string {
	for _, s := range signs {
		if strings.Contains(userAgent, s.word) {
			return s.name
		}
	}
	return ""
}
