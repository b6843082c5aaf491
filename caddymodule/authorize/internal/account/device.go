package account

import (
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
)

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
