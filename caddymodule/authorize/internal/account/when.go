package account

import (
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
