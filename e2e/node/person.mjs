// A person with a browser, for clients that run in Node: cookies, redirects one
// by one, and the sign-in page's form.
export const issuer = process.env.ISSUER;
export const redirectURI = 'http://localhost:3000/callback';

// signIn opens an authorization URL and signs in. It returns where that ends:
// at the redirect URI, which is not opened.
export async function signIn(authorizationURL) {
	const browser = new Browser();
	const page = await browser.open(authorizationURL);
	const html = await page.text();
	const action = /<form method="post" action="([^"]*)"/.exec(html)?.[1];
	if (!action) {
		throw new Error(`no form at ${page.url}: ${html}`);
	}
	const form = new URLSearchParams({ username: 'alice', password: 'alice-demo-password' });
	for (const [, name, value] of html.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)"/g)) {
		form.set(name, value);
	}
	const answer = await browser.fetch(new URL(action, page.url), { method: 'POST', body: form });
	return new URL(answer.headers.get('location'));
}

class Browser {
	#cookies = new Map();

	async fetch(url, options) {
		const cookie = [...this.#cookies].map(([name, value]) => `${name}=${value}`).join('; ');
		const response = await fetch(url, { ...options, redirect: 'manual', headers: { cookie } });
		for (const line of response.headers.getSetCookie()) {
			const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
			this.#cookies.set(name, value);
		}
		return response;
	}

	async open(url) {
		for (let redirects = 0; redirects < 5; redirects++) {
			const response = await this.fetch(url);
			if (response.status !== 302) {
				return response;
			}
			url = new URL(response.headers.get('location'), url);
		}
		throw new Error('too many redirects');
	}
}

// expandGender is the address of a small expansion.
export const expandGender = new URL(
	`${issuer}/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender`,
);
