// Two FHIR clients of Node's as SMART apps of a patient: npm fhir-kit-client, which has no OAuth
// of its own beyond discovery, and @medplum/core, which has all but discovery.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { MedplumClient } from '@medplum/core';
import { Client } from 'fhir-kit-client';
import * as oauth from 'openid-client';

import { issuer, signIn } from './person.mjs';

const baseUrl = `${issuer}/fhir/R4`;
const redirect_uri = 'https://app.example.org/callback';
const scope = 'launch/patient openid fhirUser offline_access patient/*.rs';

test('fhir-kit-client: discovery, search in pages, and nobody else', async () => {
	const client = new Client({ baseUrl });
	const { authorizeUrl, tokenUrl } = await client.smartAuthMetadata();
	assert.equal(authorizeUrl.href, `${issuer}/oauth2/authorize`);
	const server = { issuer, authorization_endpoint: authorizeUrl.href, token_endpoint: tokenUrl.href, jwks_uri: `${issuer}/.well-known/jwks.json` };
	const config = new oauth.Configuration(server, 'node-app', undefined, oauth.None());
	const verifier = oauth.randomPKCECodeVerifier();
	const code_challenge = await oauth.calculatePKCECodeChallenge(verifier);
	const address = oauth.buildAuthorizationUrl(config, { redirect_uri, scope, aud: baseUrl, code_challenge, code_challenge_method: 'S256' });
	const tokens = await oauth.authorizationCodeGrant(config, await signIn(address), { pkceCodeVerifier: verifier, idTokenExpected: true });
	await readsOwn(client, tokens);
	const again = await oauth.refreshTokenGrant(config, tokens.refresh_token);
	assert.notEqual(again.access_token, tokens.access_token);
	await readsOwn(client, again);
});

async function readsOwn(client, { access_token, patient }) {
	client.bearerToken = access_token;
	assert.equal(patient, 'p01');
	const { name } = await client.read({ resourceType: 'Patient', id: patient });
	assert.equal(name[0].family, 'Ashby');
	const ids = new Set();
	let page = await client.search({ resourceType: 'Observation', searchParams: { patient, _count: 7 } });
	const { total } = page;
	for (; page; page = await client.nextPage({ bundle: page })) {
		page.entry.forEach(({ resource }) => ids.add(resource.id));
	}
	assert.ok(ids.size > 7);
	assert.ok(total === undefined || total === ids.size);
	await assert.rejects(client.read({ resourceType: 'Patient', id: 'p02' }));
	const others = await client.search({ resourceType: 'Observation', searchParams: { patient: 'p02' } }).catch(() => ({}));
	assert.equal(others.entry?.length ?? 0, 0);
}

// In Node it lacks what it takes from the browser: the place of the verifier, and somewhere to go.
test('@medplum/core: code flow with PKCE, search, refresh, and nobody else', async () => {
	const kept = new Map();
	globalThis.sessionStorage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value), clear: () => kept.clear() };
	const client = new MedplumClient({
		baseUrl: `${issuer}/`, fhirUrlPath: 'fhir/R4', authorizeUrl: `${issuer}/oauth2/authorize`, tokenUrl: `${issuer}/oauth2/token`,
		clientId: 'node-app', fetch,
	});
	globalThis.window = globalThis;
	const { codeChallenge, codeChallengeMethod } = await client.startPkce();
	delete globalThis.window;
	const address = new URL(client.getAuthorizeUrl());
	address.search = new URLSearchParams({
		response_type: 'code', client_id: 'node-app', redirect_uri, scope, state: kept.get('pkceState'),
		code_challenge: codeChallenge, code_challenge_method: codeChallengeMethod,
	});
	const end = await signIn(address);
	assert.equal(end.searchParams.get('state'), kept.get('pkceState'));
	await client.processCode(end.searchParams.get('code'), { redirectUri: redirect_uri });
	await seesOwn(client);
	const before = client.getAccessToken();
	await client.refresh();
	assert.notEqual(client.getAccessToken(), before);
	await seesOwn(client);
	await picks(client);
});

// picks asks as the pick lists of @medplum/react do: an explicit value set, and the implicit one of a code system.
async function picks(client) {
	for (const url of ['http://hl7.org/fhir/ValueSet/administrative-gender', 'http://hl7.org/fhir/administrative-gender?fhir_vs']) {
		const { expansion } = await client.valueSetExpand({ url, filter: 'fem', count: 10 });
		assert.deepEqual(expansion.contains.map(({ code }) => code), ['female']);
	}
	await assert.rejects(client.valueSetExpand({ url: 'http://example.org/none' }));
}

async function seesOwn(client) {
	const { name } = await client.readResource('Patient', 'p01', { cache: 'reload' });
	assert.equal(name[0].family, 'Ashby');
	let found = 0;
	for await (const page of client.searchResourcePages('Observation', 'patient=p01&_count=7')) {
		found += page.length;
	}
	assert.ok(found > 7);
	await assert.rejects(client.readResource('Patient', 'p02', { cache: 'reload' }));
	const others = await client.searchResources('Observation', 'patient=p02').catch(() => []);
	assert.equal(others.length, 0);
}
