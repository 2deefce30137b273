"""Cells: small values beside the locks. Write, read, list, delete, and transactions."""

from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema
from lockapi import answers, cells, paging, rights_needed, sight
from lockapi.gateway import Gateway
from lockapi.requests.cells import DeleteCellRequest, DeletePrefixRequest, PutCellRequest, TransactRequest
from lockstate.words import limits, results


async def put_cell(gateway: Gateway, call: Call) -> Reply:
    """Write a cell, if it is as the request wants it to be."""
    request = await schema.read(call, PutCellRequest)
    command = request.command(call.path_value)
    if request.is_conditional:
        result, revision, is_repeated = await gateway.submit(command, results.Transacted, call.timeout_s)
        return Reply(answers.told(cells.written_if(result, revision), is_repeated=is_repeated))
    written, revision, is_repeated = await gateway.submit(command, results.CellWritten, call.timeout_s)
    return Reply(answers.told(cells.written(written, revision), is_repeated=is_repeated))


async def delete_cell(gateway: Gateway, call: Call) -> Reply:
    """Delete a cell, if it is as the request wants it to be."""
    request = await schema.read(call, DeleteCellRequest)
    command = request.command(call.path_value)
    if request.is_conditional:
        result, revision, is_repeated = await gateway.submit(command, results.Transacted, call.timeout_s)
        return Reply(answers.told(cells.deleted_if(result, revision), is_repeated=is_repeated))
    deleted, revision, is_repeated = await gateway.submit(command, results.CellsDeleted, call.timeout_s)
    return Reply(answers.told(cells.deleted(deleted, revision), is_repeated=is_repeated))


async def delete_cells(gateway: Gateway, call: Call) -> Reply:
    """Delete the cells whose keys begin with a prefix, or all, a limited number at a time."""
    request = await schema.read(call, DeletePrefixRequest)
    prefix, is_all = schema.prefix_or_all(call)
    command = request.command(prefix, is_all=is_all)
    deleted, revision, is_repeated = await gateway.submit(command, results.CellsDeleted, call.timeout_s)
    return Reply(answers.told(cells.deleted(deleted, revision), is_repeated=is_repeated))


async def transact(gateway: Gateway, call: Call) -> Reply:
    """Compare cells and holds, and do one of two lists of operations."""
    command = (await schema.read(call, TransactRequest)).command()
    result, revision, is_repeated = await gateway.submit(command, results.Transacted, call.timeout_s)
    return Reply(answers.told(cells.transacted(command, result, revision), is_repeated=is_repeated))


async def get_cell(gateway: Gateway, call: Call) -> Reply:
    """Return a cell."""
    key = schema.key(call)
    name = rights_needed.text_of_key(key)
    return await reads.answer(gateway, call, lambda machine: machine.cell(key), cells.cell_of, name=name)


async def list_cells(gateway: Gateway, call: Call) -> Reply:
    """Return a page of the cells whose keys begin with a prefix."""
    prefix, after, limit = schema.page_of_cells(call)
    search, shown = sight.listing(
        gateway.rights,
        rights_needed.text_of_key(prefix),
        (after, limit),
        lambda machine, after, limit: machine.cells(prefix, after, limit),
        cells.page_of,
        shape=paging.Shape(
            name_of=lambda cell: rights_needed.text_of_key(cell.key),
            place_of=lambda cell: cell.key,
            size_of=lambda cell: len(cell.key) + len(cell.value),
            size_max=limits.LIST_CELL_BYTES_MAX,
            is_of_one_moment=True,
        ),
    )
    return await reads.found(gateway, call, search, shown)
