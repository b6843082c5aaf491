package authorize

import "github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/administration"

type (
	// Administration says who may open the page of administrators, and what keeps the apps and people that they see to.
	Administration = administration.Settings

	// AdminEntry is an app or a person on that page.
	AdminEntry = administration.Entry

	// AdminChange is what an administrator does to one.
	AdminChange = administration.Change

	// AdminFields are what an administrator can say of one.
	AdminFields = administration.Fields
)
